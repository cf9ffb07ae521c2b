"""The words everything else speaks: frozen pydantic models without behaviour that needs the outside."""

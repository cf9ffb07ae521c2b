"""Pure decisions: functions of facts, spec and now."""

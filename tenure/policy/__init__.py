"""Pure verdicts: functions of facts, spec and now."""

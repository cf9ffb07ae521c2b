"""The planner that knows prices and what pods say of each other; chosen by `PlanSettings.planner`."""

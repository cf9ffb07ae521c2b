"""Side effects of workflows, through the ports of `activities/ports`: one activity per external step."""

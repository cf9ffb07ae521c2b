"""Side effects of workflows, behind the ports of `activities/ports`: one activity per external step."""

"""Commands that apply files of this folder, for the remedies of `tenure doctor`."""

from typing import Final, Literal

START_WORKER: Final = "kubectl -n tenure scale deploy/tenure --replicas 2"


def deploy_stack(name: Literal["events", "nodes", "role"], cluster: str, *parameters: str) -> str:
    """The command that creates or updates a stack of `deploy/cloudformation`.

    `parameters`: such as `NodeRepair=true`. An existing stack keeps the other ones.
    """
    return (
        f"aws cloudformation deploy --template-file deploy/cloudformation/{name}.yaml "
        f"--stack-name tenure-{name}-{cluster} --capabilities CAPABILITY_NAMED_IAM "
        f"--parameter-overrides {' '.join((f'ClusterName={cluster}', *parameters))}"
    )


def set_in_chart(*values: str) -> str:
    """The command that sets values of the worker's chart, such as `settings.AWS_REGION=eu-west-1`."""
    return f"helm upgrade tenure deploy/charts/tenure -n tenure --reuse-values --set {','.join(values)}"

"""Commands that apply files of this folder, for the remedies of `tenure doctor`."""

from typing import Final, Literal

START_WORKER: Final = "kubectl -n tenure scale deploy/tenure --replicas 2"
READ_LOGS: Final = "kubectl logs -n tenure -l app.kubernetes.io/name=tenure --prefix --tail=100"
"""Of all workers: `kubectl logs deploy/tenure` prints the log of one of them."""
REUSE_VALUES: Final = "--reset-then-reuse-values"
"""`--reuse-values` would drop the defaults of values that the chart in this folder adds to those of the release."""


def deploy_stack(name: Literal["events", "nodes", "role"], cluster: str, *parameters: str, region: str) -> str:
    """The command that creates or updates a stack of `deploy/cloudformation`.

    `parameters`: such as `NodeRepair=true`. An existing stack keeps the other ones.
    """
    return (
        f"aws cloudformation deploy --template-file deploy/cloudformation/{name}.yaml "
        f"--stack-name tenure-{name}-{cluster} --region {region} --capabilities CAPABILITY_NAMED_IAM "
        f"--parameter-overrides {' '.join((f'ClusterName={cluster}', *parameters))}"
    )


def associate_role(cluster: str, *, region: str) -> str:
    """The command that gives the worker its role by EKS Pod Identity."""
    return (
        f"aws eks create-pod-identity-association --cluster-name {cluster} --region {region} "
        "--namespace tenure --service-account tenure --role-arn ROLE-ARN"
    )


def set_in_chart(*values: str) -> str:
    """The command that sets values of the worker's chart, such as `settings.AWS_REGION=eu-west-1`."""
    return f"helm upgrade tenure deploy/charts/tenure -n tenure {REUSE_VALUES} --set {','.join(values)}"


def apply_examples(cluster: str) -> str:
    """The command that creates the EC2NodeClass and the NodePool of the installation page."""
    return f'sed "s/demo/{cluster}/" examples/ec2nodeclass.yaml | kubectl apply -f - -f examples/nodepool.yaml'

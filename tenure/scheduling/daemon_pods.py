"""The live pods of DaemonSets, of which the newest shows the requests that a new node has to expect."""

from datetime import datetime

from tenure.model.facts import DaemonSetFact, PodFact


class DaemonPods:
    def __init__(self) -> None:
        self._pods: dict[str, dict[str, PodFact]] = {}
        """By UID of the DaemonSet, then of the pod."""
        self._newest: dict[str, PodFact] = {}
        self.revision = 0
        """Incremented when the requests or host ports of a newest pod change."""

    def update(self, daemonset_uid: str, uid: str, pod: PodFact | None) -> None:
        """A pod was added, changed or deleted."""
        pods, newest = self._pods.setdefault(daemonset_uid, {}), self._newest.get(daemonset_uid)
        pods.pop(uid, None)
        if pod is not None and not (pod.deleting or pod.is_finished):
            pods[uid] = pod
            if newest is None or newest.uid == uid or _age_key(newest) < _age_key(pod):
                self._set_newest(daemonset_uid, pod)
        elif newest is not None and newest.uid == uid:
            self._set_newest(daemonset_uid, max(pods.values(), key=_age_key, default=None))
        if not pods:
            del self._pods[daemonset_uid]

    def apply_requests(self, daemonset: DaemonSetFact) -> DaemonSetFact:
        """With the requests and host ports of its newest pod; unchanged without a pod."""
        newest = self._newest.get(daemonset.uid)
        if newest is None or newest.unplannable:
            return daemonset
        live = {"requests": newest.requests, "host_ports": newest.host_ports}
        return daemonset.model_copy(update={"pod": daemonset.pod.model_copy(update=live)})

    def _set_newest(self, daemonset_uid: str, pod: PodFact | None) -> None:
        self.revision += _demand(pod) != _demand(self._newest.pop(daemonset_uid, None))
        if pod is not None:
            self._newest[daemonset_uid] = pod


def _age_key(pod: PodFact) -> tuple[datetime, str]:
    return pod.created, pod.uid


def _demand(pod: PodFact | None) -> object:
    return (pod.requests, pod.host_ports, pod.unplannable) if pod else None

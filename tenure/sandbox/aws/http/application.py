"""Handle a request: count it, apply rate limits and faults, authorize bound keys, then call the handler or moto."""

from __future__ import annotations

import time
import traceback
from dataclasses import replace

from tenure.sandbox.aws.admin.server import Control
from tenure.sandbox.aws.ec2.actions import ACTIONS
from tenure.sandbox.aws.ec2.call import Call
from tenure.sandbox.aws.fake_aws import FakeAws
from tenure.sandbox.aws.http.faults import InjectedFault
from tenure.sandbox.aws.http.request import AwsCall, HttpRequest, identify_call
from tenure.sandbox.aws.iam.service_rules import check_service_call
from tenure.sandbox.aws.services.actions import SERVICE_ACTIONS, amend_response, apply_side_effects
from tenure.sandbox.aws.wire.query import parse_form
from tenure.sandbox.aws.wire.responses import AwsError, Response, error_response, xml_response
from tenure.sandbox.aws.wire.xml import action_response

CUT = Response(0, b"", cut=True)
# moto serves these without our lock, because a long poll must not block other calls.
UNLOCKED = frozenset({"sqs", "sts", "logs", "events", "s3"})


class Application:
    def __init__(self, fake_aws: FakeAws) -> None:
        self._fake_aws = fake_aws
        self._control = Control(fake_aws)

    def __call__(self, http: HttpRequest) -> Response:
        if http.path.startswith("/_sim/"):
            return self._control.handle(http)
        call = identify_call(http)
        name = f"{call.service or 'unsigned'}:{call.action}"
        self._fake_aws.counters.record_call(name, call.access_key)
        injected = self._fake_aws.faults.evaluate(call.service, call.action, call.parameters)
        if injected.latency:
            time.sleep(injected.latency)
        response = self._perform_guarded(call, injected, name)
        if not injected.drop_response:
            return response
        return CUT if injected.error is None else error_response(call.service, injected.error)

    def _perform_guarded(self, call: AwsCall, injected: InjectedFault, name: str) -> Response:
        try:
            self._fake_aws.rates.admit(call, self._fake_aws.clock.now())
            if injected.error is not None and not injected.drop_response and not injected.empty_pools:
                raise injected.error
            response = self._perform(call, injected)
        except AwsError as error:
            self._fake_aws.counters.record_failure(name, call.access_key, error.code)
            return error_response(call.service, error)
        except Exception:
            traceback.print_exc()
            self._fake_aws.counters.record_failure(name, call.access_key, "Bug")
            return error_response(call.service, AwsError("InternalError", "The AWS stand-in failed; see its log."))
        if response.status >= 400:
            self._fake_aws.counters.record_failure(name, call.access_key, str(response.status))
        return response

    def _perform(self, call: AwsCall, injected: InjectedFault) -> Response:
        if not call.service:
            raise AwsError("MissingAuthenticationToken", "Request is missing Authentication Token", 403)
        if call.service == "ec2" and call.action in ACTIONS:
            return self._own_ec2(call, injected)
        authorizer = self._fake_aws.keys.authorizer_for(call.access_key, call.region)
        if authorizer is not None:
            check_service_call(authorizer, call)
        if call.service in UNLOCKED and (call.service, call.action) not in SERVICE_ACTIONS:
            return self._fake_aws.moto.call(call.http, call.service)
        # Launches read the state of IAM and other services, so it only changes under the lock of the home region.
        environment = (
            self._fake_aws.environment(call.region) if call.service == "ec2" else self._fake_aws.default_environment
        )
        with environment.lock:
            return self._perform_other_service(call)

    def _perform_other_service(self, call: AwsCall) -> Response:
        handler = SERVICE_ACTIONS.get((call.service, call.action))
        if handler is not None:
            return handler(self._fake_aws, call)
        response = self._fake_aws.moto.call(call.http, call.service)
        if response.status < 300:
            apply_side_effects(self._fake_aws, call)
        return replace(response, body=amend_response(call, response.body))

    def _own_ec2(self, call: AwsCall, injected: InjectedFault) -> Response:
        environment = self._fake_aws.environment(call.region)
        authorizer = self._fake_aws.keys.authorizer_for(call.access_key, call.region)
        starved = injected.error if injected.empty_pools else None
        with environment.lock:
            environment.run_due_transitions()
            if authorizer is not None:
                authorizer.authorize_plain(environment, call.action)
            parsed = Call(call.action, parse_form(call.action, call.form), environment, authorizer, starved)
            result = ACTIONS[call.action](parsed)
            body = result if isinstance(result, bytes) else action_response(call.action, result)
        return xml_response(body)

"""API Gateway: the shape of its own refusals, and the stage's own domain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from .resources import policy, resource

_REFUSALS: dict[str, tuple[int, str, str, bool]] = {
    "UNAUTHORIZED": (401, "UNAUTHORIZED", "A valid token is needed: Authorization: Bearer hr_...", False),
    "ACCESS_DENIED": (403, "FORBIDDEN", "The token does not allow this call.", False),
    "WAF_FILTERED": (403, "FORBIDDEN", "The web ACL before the API does not let this call through.", False),
    "MISSING_AUTHENTICATION_TOKEN": (404, "ROUTE_NOT_FOUND", "There is nothing at this path.", False),
    "REQUEST_TOO_LARGE": (413, "BODY_TOO_LARGE", "A request may have at most 4.4 MB.", False),
    "THROTTLED": (429, "THROTTLED", "Too many calls at this moment; nothing happened.", True),
    "QUOTA_EXCEEDED": (429, "THROTTLED", "Too many calls at this moment; nothing happened.", True),
    "INTEGRATION_TIMEOUT": (504, "TIMED_OUT", "No answer in time; the call may have taken effect.", True),
    # A token at an unknown path is such a case too: API Gateway takes it for a signature of AWS's.
    "DEFAULT_4XX": (400, "BAD_REQUEST", "The request is damaged, or there is nothing at this path.", False),
    "DEFAULT_5XX": (503, "UNAVAILABLE", "Something went wrong on our side; try again.", True),
}
"""What API Gateway refuses by itself, by its name for that: status, code, detail, whether to try again."""


_AUTHORIZER = {
    # What has not the form of a token is refused by API Gateway itself, and starts nothing.
    "x-amazon-apigateway-authorizer": {
        "identityValidationExpression": "^ *[Bb][Ee][Aa][Rr][Ee][Rr] +hr_[0-9A-Za-z]{1,64}_[0-9A-Za-z_-]{8,256} *$"
    }
}

RECEIVE = "/v1/topics/{topic}/groups/{group}/receive"
_BY_RECEIVE = {
    # Who waits for messages takes no run from other calls.
    "Fn::Sub": "arn:${AWS::Partition}:apigateway:${AWS::Region}:lambda:path/2015-03-31/functions/"
    "${Receive.Arn}/invocations"
}


def api(prefix: str, tracing: bool, rate: int, domain: dict[str, str] | None) -> dict[str, Any]:
    """What is added to Chalice's RestAPI. `rate`: calls a second, and at once after a pause, before API Gateway answers
    THROTTLED. `domain`: `name`, `certificate` (an ARN) and perhaps `zone` (Route 53)."""
    everything = {"HttpMethod": "*", "ResourcePath": "/*"}
    properties: dict[str, Any] = {
        "Name": prefix,
        "OpenApiVersion": "2.0",  # else SAM adds a stage of the name "Stage"
        "TracingEnabled": tracing,
        "MethodSettings": [{**everything, "ThrottlingRateLimit": rate, "ThrottlingBurstLimit": rate}],
        "DefinitionBody": {
            "info": {"title": prefix},
            "securityDefinitions": {"authorize": _AUTHORIZER},
            "paths": {RECEIVE: {"post": {"x-amazon-apigateway-integration": {"uri": _BY_RECEIVE}}}},
        },
        "GatewayResponses": {name: response(*refusal) for name, refusal in _REFUSALS.items()},
    }
    if domain:
        properties["Domain"] = _domain(domain)
    return {"RestAPI": {"Properties": properties}}


def bound_anonymous(template: dict[str, Any], rate: int) -> None:
    """Give each call of a packaged template that needs no token a bound of its own: `rate` a second. So who has none
    takes nothing from those who have one."""
    properties = template["Resources"]["RestAPI"]["Properties"]
    for path, methods in sorted(properties["DefinitionBody"]["paths"].items()):
        resource_path = "/" if path == "/" else f"/{path.replace('/', '~1')}"
        for method, operation in methods.items():
            if method != "options" and not operation.get("security"):
                bound = {"HttpMethod": method.upper(), "ResourcePath": resource_path}
                limits = {"ThrottlingRateLimit": rate, "ThrottlingBurstLimit": rate}
                properties["MethodSettings"].append({**bound, **limits})


_NO_CORS = ("/v1/tokens", "/v1/sign-in-links")
_CORS_ANSWER = """#set($origin = $input.params("Origin"))
#if({})
#set($context.responseOverride.header.Access-Control-Allow-Origin = $origin)
#set($context.responseOverride.header.Access-Control-Allow-Methods = "{}")
#set($context.responseOverride.header.Access-Control-Allow-Headers = "Authorization, *")
#set($context.responseOverride.header.Access-Control-Max-Age = "7200")
#end
#set($context.responseOverride.header.Vary = "Origin")
"""


def allow_origins(template: dict[str, Any], origins: Sequence[str]) -> None:
    """Have API Gateway itself answer browsers that ask (OPTIONS) whether a page of these origins may make a call; that
    starts no function. The calls' own answers have their headers from the API; a refusal of API Gateway can name one
    origin, no list."""
    properties = template["Resources"]["RestAPI"]["Properties"]
    if len(origins) == 1:
        for refusal in properties["GatewayResponses"].values():
            refusal["ResponseParameters"]["Headers"]["Access-Control-Allow-Origin"] = f"'{origins[0]}'"
    is_one = " || ".join(f'$origin == "{origin}"' for origin in origins)
    for path, methods in properties["DefinitionBody"]["paths"].items():
        if path.startswith("/v1/") and not path.startswith(_NO_CORS):
            allowed = ", ".join(sorted(method.upper() for method in methods))
            answer = _CORS_ANSWER.format(is_one, allowed)
            methods["options"] = {
                "consumes": ["application/json"],
                "produces": ["application/json"],
                "responses": {"204": {"description": "What a page of this origin may send"}},
                "x-amazon-apigateway-integration": {
                    "type": "mock",
                    "requestTemplates": {"application/json": '{"statusCode": 204}'},
                    "passthroughBehavior": "when_no_match",
                    "contentHandling": "CONVERT_TO_TEXT",  # else `*/*` as binary keeps the template from being read
                    "responses": {
                        "default": {"statusCode": "204", "responseTemplates": {"application/json": answer}}
                    },
                },
            }


_LINE = {
    # The fields that readers of access logs need. No query, no headers: they may contain secrets.
    **{
        name: f"$context.{name}"
        for name in ("requestId", "requestTime", "httpMethod", "resourcePath", "status")
    },
    "ip": "$context.identity.sourceIp",
    "token": "$context.authorizer.principalId",
    "bytes": "$context.responseLength",
    "ms": "$context.responseLatency",
}


def with_access_log(api: dict[str, Any], log_group: dict[str, Any]) -> dict[str, Any]:
    """The API with a line of JSON for each call in a log group of the stack's own."""
    setting = {"DestinationArn": {"Fn::GetAtt": ["AccessLog", "Arn"]}, "Format": json.dumps(_LINE)}
    return {
        "RestAPI": {"Properties": {**api["RestAPI"]["Properties"], "AccessLogSetting": setting}},
        "AccessLog": log_group,
    }


def private(api: dict[str, Any], vpc_endpoint: str) -> dict[str, Any]:
    """The API for callers behind one VPC endpoint only."""
    everybody = {"Principal": "*", "Action": "execute-api:Invoke", "Resource": "execute-api:/*"}
    elsewhere = {"StringNotEquals": {"aws:SourceVpce": vpc_endpoint}}
    statements = {"Effect": "Allow", **everybody}, {"Effect": "Deny", **everybody, "Condition": elsewhere}
    properties = api["RestAPI"]["Properties"]
    body = {**properties["DefinitionBody"], "x-amazon-apigateway-policy": policy(*statements)}
    endpoint = {"Type": "PRIVATE", "VPCEndpointIds": [vpc_endpoint]}
    new_properties = {**properties, "DefinitionBody": body, "EndpointConfiguration": endpoint}
    return {**api, "RestAPI": {"Properties": new_properties}}


def acl_association(web_acl: str, api: str = "RestAPI") -> dict[str, Any]:
    """A web ACL before the stage of an API, which is named by its logical id."""
    place = f"/restapis/${{{api}}}/stages/${{{api}.Stage}}"
    stage = f"arn:${{AWS::Partition}}:apigateway:${{AWS::Region}}::{place}"
    own = resource("AWS::WAFv2::WebACLAssociation", ResourceArn={"Fn::Sub": stage}, WebACLArn=web_acl)
    return {"WebAclAssociation" if api == "RestAPI" else f"{api}WebAclAssociation": own}


def response(status: int, code: str, detail: str, retryable: bool) -> dict[str, Any]:
    """What API Gateway answers when it refuses by itself."""
    document = {
        "type": f"/errors/{code}",
        "title": HTTPStatus(status).phrase.capitalize(),
        "status": status,
        "detail": detail,
        "code": code,
        "retryable": retryable,
        "request_id": "$context.requestId",
    }
    headers = {
        "Content-Type": "'application/problem+json'",
        "X-Request-Id": "context.requestId",
        "X-Content-Type-Options": "'nosniff'",
        "Cache-Control": "'no-store'",
        "Strict-Transport-Security": "'max-age=31536000'",
    }
    if retryable:
        headers["Retry-After"] = "'1'"
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "'Bearer'"
    return {
        "StatusCode": status,
        "ResponseParameters": {"Headers": headers},
        "ResponseTemplates": {"application/json": json.dumps(document) + "\n"},
    }


def _domain(domain: dict[str, str]) -> dict[str, Any]:
    resources: dict[str, Any] = {
        "DomainName": domain["name"],
        "CertificateArn": domain["certificate"],
        "EndpointConfiguration": "REGIONAL",
        "SecurityPolicy": "TLS_1_2",
    }
    if domain.get("zone"):
        resources["Route53"] = {"HostedZoneId": domain["zone"]}
    return resources

"""`"iam": true`: a second API on the same function, for callers inside AWS who sign with SigV4."""

from __future__ import annotations

import copy
import json
from typing import Any

from . import names
from .api import acl_association, response
from .functions import receive_permission

API = "IamAPI"
_SIGNED = {
    "sigv4": {
        "type": "apiKey",
        "name": "Authorization",
        "in": "header",
        "x-amazon-apigateway-authtype": "awsSigv4",
    }
}
_POLICY = "x-amazon-apigateway-policy"
_DENIED = "The policies of the caller, in IAM, do not allow this call."
_UNSIGNED = "Sign the call with SigV4 for the service execute-api; or there is nothing at this path."


def add_iam(template: dict[str, Any], prefix: str, web_acl: str = "") -> None:
    """Add it to a packaged template: every call that needs a token, and no page of the console. Who may make which,
    policies of IAM say. Before it stands the same web ACL."""
    resources = template["Resources"]
    api = copy.deepcopy(resources["RestAPI"])
    properties = api["Properties"]
    properties["Name"] = names.iam_api(prefix)
    properties.pop("Domain", None)
    definition = properties["DefinitionBody"]
    definition["info"]["title"] = names.iam_api(prefix)
    definition["securityDefinitions"] = _SIGNED
    definition["paths"] = _signed_paths(definition["paths"])
    if policy := definition.get(_POLICY):
        # Within an account one consent is enough: an API that allows everybody would make the callers' policies void.
        policy["Statement"] = [each for each in policy["Statement"] if each["Effect"] == "Deny"]
    properties["MethodSettings"] = [
        each for each in properties["MethodSettings"] if each["HttpMethod"] == "*"
    ]
    properties["GatewayResponses"] |= {
        name: response(403, "FORBIDDEN", _UNSIGNED, False)
        for name in ("MISSING_AUTHENTICATION_TOKEN", "INVALID_SIGNATURE", "EXPIRED_TOKEN")
    }
    properties["GatewayResponses"]["ACCESS_DENIED"] = response(403, "FORBIDDEN", _DENIED, False)
    resources[API] = api
    if web_acl:
        resources |= acl_association(web_acl, API)
    permission = json.dumps(resources["APIHandlerInvokePermission"])
    resources[f"{API}InvokePermission"] = json.loads(permission.replace('"RestAPI"', f'"{API}"'))
    resources[f"{API}ReceivePermission"] = receive_permission(API)
    url = f"https://${{{API}}}.execute-api.${{AWS::Region}}.${{AWS::URLSuffix}}/api/"
    template["Outputs"]["IamEndpointURL"] = {"Value": {"Fn::Sub": url}}


def _signed_paths(paths: dict[str, Any]) -> dict[str, Any]:
    """The calls that need a token, with a signature in its place."""
    signed_paths: dict[str, Any] = {}
    for path, methods in paths.items():
        for method, operation in methods.items():
            if operation.get("security"):
                signed_paths.setdefault(path, {})[method] = {**operation, "security": [{"sigv4": []}]}
    return signed_paths

#!/usr/bin/env python3
"""The server that the protocol's conformance scenarios expect, on standard streams.

It needs only the standard library."""

import json
import sys

# An image of one pixel, and a silent sound.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="


def text(words):
    return {"type": "text", "text": words}


def resource(uri, words):
    content = {"uri": uri, "mimeType": "text/plain", "text": words}
    return {"type": "resource", "resource": content}


IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": WAV, "mimeType": "audio/wav"}
EMBEDDED = resource("test://embedded-resource", "This is an embedded resource content.")
MIXED = resource("test://mixed-content-resource", '{"test":"data","value":123}')

# Results of the tools, by name.
TOOLS = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [IMAGE],
    "test_audio_content": [AUDIO],
    "test_embedded_resource": [EMBEDDED],
    "test_multiple_content_types": [text("Multiple content types test:"), IMAGE, MIXED],
    "test_error_handling": [text("This tool intentionally returns an error for testing")],
    "json_schema_2020_12_tool": [text("otter")],
    "test_custom_headers": [text("otter")],
    "test_logging_tool": [text("otter")],
    "test_streaming_elicitation": [text("otter")],
    "test_missing_capability": [],
}

ADDRESS = {
    "$anchor": "addressDef",
    "type": "object",
    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
}
SCHEMAS = {
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": ADDRESS},
        "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
        "allOf": [{"anyOf": [{"required": ["name"]}, {"required": ["address"]}]}],
        "if": {"required": ["address"]},
        "then": {"required": ["name"]},
        "else": {"properties": {"name": {"minLength": 1}}},
        "additionalProperties": False,
    },
    "test_custom_headers": {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "priority": {"type": "integer", "x-mcp-header": "Priority"},
        },
    },
}

RESOURCES = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
}

# Prompts by name: their arguments, and a function that makes their messages.
PROMPTS = {
    "test_simple_prompt": ([], lambda given: [text("This is a simple prompt for testing.")]),
    "test_prompt_with_arguments": (
        ["arg1", "arg2"],
        lambda given: [text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")],
    ),
    "test_prompt_with_embedded_resource": (
        ["resourceUri"],
        lambda given: [
            resource(given["resourceUri"], "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
    ),
    "test_prompt_with_image": ([], lambda given: [IMAGE, text("Please analyze the image above.")]),
}


class JsonRpcError(Exception):
    """An error of JSON-RPC with code, message and optional data."""


def initialize(params):
    return {
        "protocolVersion": params["protocolVersion"],
        "capabilities": {"tools": {}, "resources": {}, "prompts": {}, "completions": {}},
        "serverInfo": {"name": "conformance", "version": "1"},
    }


def list_tools(_):
    tools = [
        {"name": name, "description": name, "inputSchema": SCHEMAS.get(name, {"type": "object"})}
        for name in TOOLS
    ]
    return {"tools": tools}


def call_tool(params):
    name = params["name"]
    if name not in TOOLS:
        raise JsonRpcError(-32602, f"Unknown tool: {name}")
    if name == "test_missing_capability":
        raise JsonRpcError(-32021, "sampling is needed", {"requiredCapabilities": {"sampling": {}}})
    return {"content": TOOLS[name], "isError": name == "test_error_handling"}


def list_resources(_):
    return {
        "resources": [
            {"uri": uri, "name": uri.rpartition("/")[2], "mimeType": content["mimeType"]}
            for uri, content in RESOURCES.items()
        ]
    }


def list_templates(_):
    template = {"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"}
    return {"resourceTemplates": [template]}


def read_resource(params):
    uri = params["uri"]
    prefix, suffix = "test://template/", "/data"
    if uri in RESOURCES:
        content = RESOURCES[uri]
    elif uri.startswith(prefix) and uri.endswith(suffix):
        name = uri[len(prefix) : -len(suffix)]
        data = {"id": name, "templateTest": True, "data": f"Data for ID: {name}"}
        content = {"mimeType": "application/json", "text": json.dumps(data)}
    else:
        raise JsonRpcError(-32602, f"Resource not found: {uri}", {"uri": uri})
    return {"contents": [{"uri": uri} | content]}


def list_prompts(_):
    return {
        "prompts": [
            {
                "name": name,
                "description": name,
                "arguments": [{"name": argument, "required": True} for argument in arguments],
            }
            for name, (arguments, _) in PROMPTS.items()
        ]
    }


def get_prompt(params):
    if params["name"] not in PROMPTS:
        raise JsonRpcError(-32602, f"Unknown prompt: {params['name']}")
    _, make = PROMPTS[params["name"]]
    contents = make(params.get("arguments", {}))
    return {"messages": [{"role": "user", "content": content} for content in contents]}


def complete(_):
    return {"completion": {"values": ["otter"], "total": 1, "hasMore": False}}


METHODS = {
    "initialize": initialize,
    "ping": lambda _: {},
    "tools/list": list_tools,
    "tools/call": call_tool,
    "resources/list": list_resources,
    "resources/templates/list": list_templates,
    "resources/read": read_resource,
    "prompts/list": list_prompts,
    "prompts/get": get_prompt,
    "completion/complete": complete,
}


def answer(request):
    try:
        method = METHODS.get(request["method"])
        if method is None:
            raise JsonRpcError(-32601, "Method not found")
        return {"result": method(request.get("params", {}))}
    except JsonRpcError as error:
        code, message, *data = error.args
        return {"error": {"code": code, "message": message} | ({"data": data[0]} if data else {})}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and "method" in request:
        message = {"jsonrpc": "2.0", "id": request["id"]} | answer(request)
        print(json.dumps(message), flush=True)

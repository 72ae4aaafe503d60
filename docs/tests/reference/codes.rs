//! The codes that the runner and the model get for errors.

use toolcrib_mediation::{ResultCode, RunnerCode};

const INTRODUCTION: &str = "\
# Errors

## Towards the program (the runner)

The mediator answers in the model API's own error shape, so that SDKs raise what they raise for
a provider: `error.code` (OpenAI) or `error.type` (Anthropic) has the code. A provider's own
errors are passed on as they came.

An error of a turn that had called services says so, and has the header `x-should-retry: false`:
the official SDKs send a request again after a 5xx, which would call the services again, and
leave that be where they read this. A program that retries by itself should heed it too.

| status | code | means | what to do |
|---|---|---|---|
";

const RESULTS: &str = "
## Towards the model

A tool's failure is a result that the model reads and can react to:
`{\"ok\":false,\"error\":{\"code\":\"permission_denied\",\"message\":\"…\"}}`.

| code | means |
|---|---|
";

pub fn page() -> String {
    let mut text = INTRODUCTION.to_owned();
    for code in RunnerCode::ALL {
        let (meaning, cure) = runner(code);
        text += &format!(
            "| {} | `{}` | {meaning} | {cure} |\n",
            code.status(),
            code.name()
        );
    }
    text += RESULTS;
    for code in results() {
        let name = if let ResultCode::Http(_) = code {
            "http_STATUS".to_owned()
        } else {
            code.to_string()
        };
        text += &format!("| `{name}` | {} |\n", result(code));
    }
    text
}

fn runner(code: RunnerCode) -> (&'static str, &'static str) {
    match code {
        RunnerCode::Unauthorized => (
            "the token is not this agent's",
            "use the environment that was injected; if the pod is older than its Agent (`TokenReplaced` in its status), delete the pod",
        ),
        RunnerCode::ManifestBroken => (
            "the compiled files do not belong together, or are of another version",
            "`kubectl describe agent`; the mediator's log names the file",
        ),
        RunnerCode::AccessWithdrawn => (
            "the Agent, or its compiled Secret, is gone; or the Agent was suspended a moment ago, and its files do not say so yet",
            "`kubectl get agent`; if it is gone, create it again, then delete its pods: they hold the earlier token",
        ),
        RunnerCode::AgentSuspended => (
            "the Agent says `suspend: true`; the text has the reason that was given",
            "`kubectl toolcrib resume agent/NAME`, once its cause is dealt with",
        ),
        RunnerCode::ModelNotAllowed => (
            "the model is outside of the policy; the text lists what is inside",
            "[`Agent.spec.models`](kinds.md#agent), or ask for another model",
        ),
        RunnerCode::NNotSupported => ("`n` above 1 beside managed tools", "ask for one choice"),
        RunnerCode::FieldRefused => (
            "the request has a field that cannot be served here; the text names it",
            "leave it out",
        ),
        RunnerCode::TotalTimeout => (
            "the turn took longer than `policy.totalTimeout`",
            "raise it, or look into the record for what took so long",
        ),
        RunnerCode::BudgetExhausted => (
            "the model called tools for more than `policy.maxRounds` rounds",
            "raise it, or look into the record for a loop",
        ),
        RunnerCode::NoUsableKey => (
            "every key of the provider is exhausted, refused, or cooling down; the text names the provider, the reason and the status",
            "`refused its key`: the provider's Secret has a wrong key; otherwise the provider's account, or try again later",
        ),
        RunnerCode::UpstreamUnreachable => (
            "the provider cannot be reached, or its answer broke off",
            "the provider's status; `kubectl logs -c toolcrib-mediator`",
        ),
        RunnerCode::UpstreamError => (
            "the provider was reached and answered with an error. Before the first round of tools the program gets the provider's own status and error, and only the record has this code",
            "401 and 403: the provider's key; 404: the model's name and the provider's address; otherwise the provider's status",
        ),
        RunnerCode::UpstreamMalformed => (
            "the provider's answer is too large, or is none of the API",
            "the provider's address: it serves something else; `kubectl logs -c toolcrib-mediator`",
        ),
        RunnerCode::Overloaded => (
            "more requests run than the mediator takes at once",
            "try again; spread the load over more pods",
        ),
        RunnerCode::UnknownToolChoice => (
            "`tool_choice` names a tool that is neither the program's nor granted",
            "name one that is",
        ),
        RunnerCode::ModelMissing => (
            "the request names no model and the agent has no default",
            "name one, or set `Agent.spec.models.default`",
        ),
        RunnerCode::DialectUnsupported => (
            "the model's provider does not speak the API that was called",
            "call it in the API that it speaks, or name another model",
        ),
        RunnerCode::InvalidRequest => (
            "the body cannot be read as the API's",
            "correct it as the text says",
        ),
        RunnerCode::RecordUnavailable => (
            "neither disk nor standard output takes another line of the record",
            "the volume of the record and the node's disk",
        ),
        RunnerCode::IdentityRefused => (
            "with `identity: Pod` the pod's name has a dot, as identities of other namespaces' agents have",
            "give the pod a name without dots, or set `identity: Agent`",
        ),
        RunnerCode::NotFound => (
            "nothing is served under that method and path",
            "`/v1/chat/completions`, `/v1/responses`, `/v1/messages`, `/v1/messages/count_tokens`, `/v1/models`",
        ),
    }
}

fn results() -> [ResultCode; 18] {
    [
        ResultCode::InvalidArguments,
        ResultCode::SchemaValidation,
        ResultCode::PermissionDenied,
        ResultCode::RetriesExhausted,
        ResultCode::ApprovalDenied,
        ResultCode::ApprovalTimeout,
        ResultCode::Timeout,
        ResultCode::Canceled,
        ResultCode::Http(0),
        ResultCode::McpError,
        ResultCode::ToolError,
        ResultCode::DuplicateToolCall,
        ResultCode::MixedToolOrder,
        ResultCode::TerminalOnSuccessOrder,
        ResultCode::ToolBudgetExhausted,
        ResultCode::UnsupportedTool,
        ResultCode::UnsupportedRequirement,
        ResultCode::RequestFailed,
    ]
}

fn result(code: ResultCode) -> &'static str {
    match code {
        ResultCode::InvalidArguments => {
            "the arguments cannot be read, or a value cannot stand where it belongs"
        }
        ResultCode::SchemaValidation => "the arguments do not fit the tool's schema",
        ResultCode::PermissionDenied => {
            "the tool is not, or no longer, allowed; or its tier needs an approval"
        }
        ResultCode::RetriesExhausted => "the same tool was called wrongly too often in this turn",
        ResultCode::ApprovalDenied => "somebody refused the call",
        ResultCode::ApprovalTimeout => "nobody decided in time",
        ResultCode::Timeout => "the service did not answer within `policy.toolTimeout`",
        ResultCode::Canceled => "the turn ended before the call did",
        ResultCode::Http(_) => "the service answered with this status",
        ResultCode::McpError => {
            "the MCP server answered with an error, or not as the protocol or its output schema demands"
        }
        ResultCode::ToolError => "the tool says that it failed",
        ResultCode::DuplicateToolCall => {
            "the same call with the same arguments ran already in this turn"
        }
        ResultCode::MixedToolOrder => {
            "managed tools must come before the program's own in one reply"
        }
        ResultCode::TerminalOnSuccessOrder => "a tool that ends the turn stands before others",
        ResultCode::ToolBudgetExhausted => "the turn's budget is spent",
        ResultCode::UnsupportedTool => "there is no tool of that name",
        ResultCode::UnsupportedRequirement => {
            "the tool needs something that this mediator does not know"
        }
        ResultCode::RequestFailed => "the service could not be reached, or its answer not be read",
    }
}

//! The codes that the runner and the model get for errors.

use toolcrib_mediation::{ResultCode, RunnerCode};

const INTRODUCTION: &str = "\
# Errors

## Errors for the program (the runner)

The mediator answers in the model API's own error format, so that SDKs raise the same exceptions as for
a provider: `error.code` (OpenAI) or `error.type` (Anthropic) has the code. A provider's own
errors are passed on unchanged.

After a 5xx the official SDKs repeat a request, which would call the services again. So an error of a turn
that has called services says so, and has the header `x-should-retry: false`, which these SDKs respect. A
program that retries by itself should respect it too.

| status | code | means | what to do |
|---|---|---|---|
";

const RESULTS: &str = "
## Errors for the model

A tool's failure is a result that the model reads, and to which it can react:
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
            "use the injected environment; if the pod is older than its Agent (`TokenReplaced` in its status), delete the pod",
        ),
        RunnerCode::ManifestBroken => (
            "the compiled files are inconsistent, or of another version",
            "`kubectl describe agent`; the mediator's log names the file",
        ),
        RunnerCode::AccessWithdrawn => (
            "the Agent, or its compiled Secret, was deleted; or the Agent was suspended a moment ago, and its files do not say so yet",
            "`kubectl get agent`; if it does not exist, create it again, then delete its pods: they hold the earlier token",
        ),
        RunnerCode::AgentSuspended => (
            "the Agent has `suspend: true`; the text has the reason",
            "`kubectl toolcrib resume agent/NAME`, once its cause is dealt with",
        ),
        RunnerCode::ModelNotAllowed => (
            "the policy does not allow the model; the text lists the allowed ones",
            "[`Agent.spec.models`](kinds.md#agent), or ask for another model",
        ),
        RunnerCode::NNotSupported => ("`n` above 1 beside managed tools", "ask for one choice"),
        RunnerCode::FieldRefused => (
            "the request has a field that the mediator refuses; the text names it",
            "leave it out",
        ),
        RunnerCode::TotalTimeout => (
            "the turn took longer than `policy.totalTimeout`",
            "raise it, or look in the record for slow rounds and calls",
        ),
        RunnerCode::BudgetExhausted => (
            "the model called tools for more than `policy.maxRounds` rounds",
            "raise it, or look in the record for a loop",
        ),
        RunnerCode::QuotaExhausted => (
            "a budget of tokens is used up; the text says which, and when its next period begins",
            "wait, or raise `spec.budgets` of the Agent, of the ToolDefaults or of the ClusterToolPolicy; `status.budgets` has what is used",
        ),
        RunnerCode::NoUsableKey => (
            "every key of the provider is exhausted, refused, or cooling down; the text names the provider, the reason and the status",
            "`refused its key`: the provider's Secret has a wrong key; otherwise the provider's account, or try again later",
        ),
        RunnerCode::UpstreamUnreachable => (
            "the provider cannot be reached, or interrupted its answer",
            "`kubectl toolcrib audit AGENT --requests` names the cause and the address; so does `kubectl logs -c toolcrib-mediator`",
        ),
        RunnerCode::UpstreamError => (
            "the provider answered with an error. Before the first round of tools the program gets the provider's own status and error, and only the record has this code",
            "401 and 403: the provider's key; 404: the model's name and the provider's address; otherwise the provider's status",
        ),
        RunnerCode::UpstreamMalformed => (
            "the provider's answer is too large, or not a valid answer of the API",
            "check the provider's address, where another service may answer; `kubectl logs -c toolcrib-mediator`",
        ),
        RunnerCode::Overloaded => (
            "more requests run than the mediator allows at once",
            "try again; spread the load over more pods",
        ),
        RunnerCode::UnknownToolChoice => (
            "`tool_choice` names a tool that is neither the program's nor granted",
            "name one of these tools",
        ),
        RunnerCode::ModelMissing => (
            "the request names no model and the agent has no default",
            "name a model, or set `Agent.spec.models.default`",
        ),
        RunnerCode::DialectUnsupported => (
            "the model's provider does not speak the API of the request",
            "use the API that the provider speaks, or name another model",
        ),
        RunnerCode::InvalidRequest => (
            "the body is not a valid request of the API",
            "correct the request as the text says",
        ),
        RunnerCode::RecordUnavailable => (
            "the record can be written neither to disk nor to standard output",
            "check the volume of the record and the node's disk",
        ),
        RunnerCode::IdentityRefused => (
            "with `identity: Pod` the pod's name has a dot, as identities of other namespaces' agents have",
            "give the pod a name without dots, or set `identity: Agent`",
        ),
        RunnerCode::WebsocketNotSupported => (
            "the program would open a WebSocket",
            "`POST` over HTTP; most programs fall back by themselves",
        ),
        RunnerCode::NotFound => (
            "the mediator does not serve this method and path; it serves the following paths",
            "`/v1/chat/completions`, `/v1/responses`, `/v1/messages`, `/v1/messages/count_tokens`, `/v1/models`",
        ),
    }
}

fn results() -> impl Iterator<Item = ResultCode> {
    ResultCode::NAMED.into_iter().chain([ResultCode::Http(0)])
}

fn result(code: ResultCode) -> &'static str {
    match code {
        ResultCode::InvalidArguments => {
            "the arguments cannot be decoded, or a value is not allowed at its place in the request"
        }
        ResultCode::SchemaValidation => "the arguments do not fit the tool's schema",
        ResultCode::ConditionFailed => {
            "the tool is not granted with these arguments; the text says what to change"
        }
        ResultCode::AmbiguousArguments => {
            "an argument that several grants fix to different values was left out"
        }
        ResultCode::RateLimited => {
            "the tool was called as often as it is granted; the text says when the next call is allowed"
        }
        ResultCode::QuotaExhausted => {
            "a budget of calls is used up; the text says which, and when its next period begins"
        }
        ResultCode::PermissionDenied => {
            "the tool is not, or no longer, allowed; or it needs an approval that nobody can give here"
        }
        ResultCode::RetriesExhausted => "the same tool was called wrongly too often in this turn",
        ResultCode::ApprovalDenied => {
            "a person denied the call, nobody decided before its approval expired, or the approval was withdrawn; nothing ran"
        }
        ResultCode::ApprovalPending => {
            "nobody has decided on the call yet, and nothing ran; the same call with exactly the same arguments can be made again and meets the same approval"
        }
        ResultCode::ApprovalTooLarge => {
            "the call needs an approval, and its arguments are larger than the 16 KiB that a person can review; nothing ran"
        }
        ResultCode::TooManyPending => {
            "too many calls of this agent, its namespace or the cluster wait for approvals; nothing ran"
        }
        ResultCode::TooManyDenied => {
            "people denied five calls of this agent within an hour, and it asks no more until the hour is over; nothing ran"
        }
        ResultCode::Timeout => "the service did not answer within `policy.toolTimeout`",
        ResultCode::Canceled => "the turn ended before the call",
        ResultCode::Http(_) => "the service answered with this status",
        ResultCode::McpError => {
            "the MCP server answered with an error, or its answer violates the protocol or the output schema"
        }
        ResultCode::ToolError => "the tool reported a failure",
        ResultCode::DuplicateToolCall => {
            "the same call with the same arguments ran already in this turn"
        }
        ResultCode::MixedToolOrder => {
            "managed tools must come before the program's own in one reply"
        }
        ResultCode::TerminalOnSuccessOrder => "a call that ends the turn comes before others",
        ResultCode::ToolBudgetExhausted => "the turn's budget is spent",
        ResultCode::UnsupportedTool => "there is no tool of that name",
        ResultCode::UnsupportedRequirement => {
            "the tool has a requirement that this mediator does not know"
        }
        ResultCode::RequestFailed => {
            "the service could not be reached, or its answer could not be decoded"
        }
    }
}

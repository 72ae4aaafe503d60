//! Examples and exit codes of each verb, for `--help` and the reference.
//!
//! Invariant: the command accepts each example; a test parses all of them.

pub const COMPILE: &str = "\
Examples:
  # The objects that the operator would write for these files
  kubectl toolcrib compile -f desk/

  # In CI, with Secrets that are not among the files
  kubectl toolcrib compile -f desk/ --assume-secrets -o table

  # One line per tool of one agent, from the cluster
  kubectl toolcrib compile -n trading --agent analyst -o table

Secrets are printed as ${secret:NAMESPACE/NAME/KEY}, never with their values.

Exit codes: 0; 1 if a finding is an error; 2 for a wrong command line, or files that cannot be
read.";

pub const INJECT: &str = "\
Examples:
  # The injected pod of a Deployment and its Agent
  kubectl toolcrib inject -f desk/

  # The changes of admission
  kubectl toolcrib inject -f desk/ | diff desk/50-pods.yaml -

Exit codes: 0; 1 if a pod is refused; 2 for a wrong command line, or files that cannot be read.";

pub const EXPLAIN: &str = "\
Examples:
  # All tools of an agent, granted and withheld, and the state of its pods
  kubectl toolcrib explain analyst -n trading

  # From files: why the agent does not have this tool
  kubectl toolcrib explain -f desk/ analyst trading-api.execute_trade

Exit codes: 0; 1 if the agent has no such tool, or the command failed; 2 for a wrong command line.";

pub const INSPECT: &str = "\
Examples:
  kubectl toolcrib inspect trading-api -n trading

  # The digest to pin in a grant
  kubectl toolcrib inspect -f desk/ trading-api -o json | jq -r .descriptorDigest";

pub const APPROVALS: &str = "\
Examples:
  # The calls that wait, and those that were decided in the last hour
  kubectl toolcrib approvals -n trading

  # The same of all namespaces, and then a line for each change, until interrupted
  kubectl toolcrib approvals -A -w

  # One of them, with all its arguments
  kubectl toolcrib approvals executor-5f1c09a37b2e -n trading

It needs the rights of the chart's ClusterRole NAME-approver, bound in the namespace; NAME is the Helm
release, usually toolcrib.";

pub const APPROVE: &str = "\
Examples:
  kubectl toolcrib approve executor-5f1c09a37b2e -n trading

It prints the call and approves it without a question: look at it first with
`kubectl toolcrib approvals NAME`. The approval is a ToolDecision in your name; the command waits up to 10 s until the
operator says whether it counts. It is for this call of this pod, and is used at most once: if the pod ends
before, the next pod asks anew.

Exit codes: 0; 1 if the decision does not count, or the operator has not said so; 2 for a wrong
command line.";

pub const DENY: &str = "\
Examples:
  # The agent reads the reason
  kubectl toolcrib deny executor-5f1c09a37b2e -n trading --reason INC-7

It prints the call and denies it without a question, by a ToolDecision in your name. One person who may
approve is enough to deny.

Exit codes: 0; 1 if the decision does not count, or the operator has not said so; 2 for a wrong
command line.";

pub const DOCTOR: &str = "\
Examples:
  # The installation, and the agents of one namespace
  kubectl toolcrib doctor -n trading

  # The agents of all namespaces
  kubectl toolcrib doctor -A

  # A file for a bug report
  kubectl toolcrib doctor -A --bundle toolcrib.tar

It reads with your own rights, and changes nothing. Each check is a line: OK, or what is wrong and what to do.

The bundle has no Secret, no argument of a call and no token. It has names of objects, and the messages in
status and events: read it before you share it.

Exit codes: 0, also with a WARNING; 1 if a line is ERROR, or the command failed; 2 for a wrong command line, or
a file that exists; 3 if no line is ERROR and a check could not be made.";

pub const SUSPEND: &str = "\
Examples:
  # One agent; its users read the reason
  kubectl toolcrib suspend agent/analyst -n trading --reason INC-7

  # Every agent of a namespace
  kubectl toolcrib suspend -n trading --all-agents

It writes `spec.suspend` and the annotation `toolcrib.dev/suspend-reason`, and no other field. The
chart's ClusterRole NAME-responder has the rights for it.

Exit codes: 0; 1 if an agent could not be suspended; 2 for a wrong command line.";

pub const RESUME: &str = "\
Examples:
  kubectl toolcrib resume agent/analyst -n trading
  kubectl toolcrib resume -n trading --all-agents

Exit codes: 0; 1 if an agent could not be resumed; 2 for a wrong command line.";

pub const TREE: &str = "\
Examples:
  kubectl toolcrib tree -A
  kubectl toolcrib tree -f desk/";

pub const IMPORT: &str = "\
Examples:
  # Into a folder for review, checked together with existing objects
  kubectl toolcrib import claw-pod.yml -n trading -f existing/ -o desk/

  # With a descriptor from a file, and a provider that the pod file does not name
  kubectl toolcrib import claw-pod.yml --describe trading-api=describe.json --provider anthropic

Parts that cannot be translated are listed on standard error, with their lines.

Exit codes: 0; 1 if the result does not compile; 2 for a wrong command line, or files that
cannot be read.";

pub const PLAN: &str = "\
Examples:
  # Before kubectl apply
  kubectl toolcrib plan -f desk/

  # The changes of a pull request, deleted files included, without a cluster
  kubectl toolcrib plan -f desk/ --against main/desk/ --prune

  # Fail if a tool is lost or gained
  kubectl toolcrib plan -f desk/ --against main/desk/ --fail-on-loss --fail-on-gain

Exit codes: 0; 1 if the command failed, or a cluster would refuse one of the files' objects; 2 for a
wrong command line or files that cannot be read; 3 if there is a difference that --fail-on-loss,
--fail-on-gain or --fail-on-change names.";

pub const TEST: &str = "\
A test is a document in a YAML file beside the objects, or in a folder below:

  apiVersion: cli.toolcrib.dev/v1alpha1
  kind: ToolTest
  metadata: {name: analyst, namespace: trading}
  spec:
    agent: analyst
    cases:
    - name: reads its own context, whatever id the model sends
      call: trading-api.get_market_context
      arguments: {claw_id: executor}
      expect:
        result: Allowed
        by: ToolGrant/analyst-reads
        request: {method: GET, url: \"http://trading-api.trading.svc:4000/api/v1/market_context/analyst\"}
    - name: may not trade
      call: trading-api.execute_trade
      arguments: {symbol: OTTR, side: buy, quantity: 3}
      expect: {result: Denied, code: unsupported_tool}

Examples:
  kubectl toolcrib test -f desk/

Exit codes: 0; 1 if a case failed; 2 for a wrong command line, or files that cannot be read or
hold no test.";

pub const SURFACE: &str = "\
Examples:
  kubectl toolcrib surface from-openapi openapi.yaml --name petstore -n shop
  kubectl toolcrib surface from-stdio files -n shop --image registry.example/files:3 -- files-mcp /data
  kubectl toolcrib surface from-image registry.example/orders:4 --name orders -n shop --service orders:8080
  kubectl toolcrib surface discover files -n shop --stdio -- files-mcp /data";

pub const DISCOVER: &str = "\
Examples:
  # A remote server; the token is read from a file and never shown
  kubectl toolcrib surface discover forge -n shop --url https://mcp.forge.example/mcp --token-file token > forge.yaml

  # A program on this machine, as from-stdio runs it in the cluster
  kubectl toolcrib surface discover files -n shop --stdio -- files-mcp /data > files.yaml

  # A Service of the cluster: first show the tools, then write them into its Surface
  kubectl toolcrib surface discover forge -n shop --in-cluster
  kubectl toolcrib surface discover forge -n shop --in-cluster --apply

  # In CI: are the server's tools still the reviewed ones?
  kubectl toolcrib surface discover forge -n shop --url https://mcp.forge.example/mcp -f forge.yaml --check

The file and standard error have remarks for the reviewer; with -f or --in-cluster, also the changes.
If a tool would be lost, or there is a new remark, --apply writes nothing without --yes.

Exit codes: 0; 1 if the server cannot be asked, if nothing was written, or with --check if its tools
changed; 2 for a wrong command line, or files that cannot be used.";

pub const FROM_OPENAPI: &str = "\
Examples:
  # Behind a Service, only operations that read
  kubectl toolcrib surface from-openapi openapi.yaml --name petstore -n shop --service petstore:8080 --include 'GET*'

  # The descriptor alone, for a ConfigMap
  kubectl toolcrib surface from-openapi openapi.json --name petstore -o descriptor

Standard error names the parts that are left out or changed. Agents may call the tools only after a
ToolGrant allows it.

Exit codes: 0; 1 if no tool could be made; 2 for a wrong command line, or a document that cannot
be read.";

pub const FROM_IMAGE: &str = "\
Examples:
  # The descriptor in the image, with docker's credential for the registry
  kubectl toolcrib surface from-image registry.example/orders:4 --name orders -n shop --service orders:8080 > orders.yaml

  # The descriptor alone, for a ConfigMap
  kubectl toolcrib surface from-image registry.example/orders:4 --name orders -o descriptor

  # In CI: is the next image's descriptor still the reviewed one?
  kubectl toolcrib surface from-image registry.example/orders:5 --name orders -n shop -f orders.yaml --check

The image's label claw.describe names the descriptor's file; without it, it is /.claw-describe.json,
else /.claw-tools.json. The Surface and standard error have remarks for the reviewer; with -f, also
the changes.

Exit codes: 0; 1 if the image cannot be read, or with --check if its descriptor has changed; 2 for a
wrong command line, or files that cannot be used.";

pub const FROM_STDIO: &str = "\
Examples:
  # The token is the key `token` of the Secret forge-token, and stays in the server's pods
  kubectl toolcrib surface from-stdio forge -n shop --image registry.example/forge-mcp:7 --env FORGE_TOKEN=forge-token/token -- forge-mcp stdio > forge.yaml

The pods run without root, and only /tmp is writable. Only pods of agents in the namespace may
connect, if the cluster's network plugin enforces NetworkPolicies. The Surface has no tools yet:
`surface discover NAME --stdio` writes one with tools.

Exit codes: 0; 2 for a wrong command line.";

pub const AUDIT: &str = "\
Examples:
  # The calls of an agent, from the logs of its mediators
  kubectl toolcrib audit otter -n pond --since 2026-12-31T08:00:00Z

  # Calls that may have run and whose outcome is unknown, from files
  kubectl toolcrib audit -f history.jsonl.1 -f history.jsonl --unsettled

  # Calls, failures and latencies per agent and tool
  kubectl toolcrib audit -A --summary

Reading logs needs `get` on `pods/log`, which shows the arguments of calls. The API server gives the
newest log file of a container, so older lines are in the record's files or your log store.

Exit codes: 0; 1 if the record cannot be read; 2 for a wrong command line, or files that cannot be
read; 3 if the record of a pod begins after --since.";

pub const PROPOSE: &str = "\
Examples:
  # From the logs of the agent's mediators, with the plan on standard error
  kubectl toolcrib propose otter -n pond --since 2026-12-01T00:00:00Z > grant.yaml

  # Without a cluster: the record and the objects from files
  kubectl toolcrib propose otter -f history.jsonl.1 -f history.jsonl --against pond/ > grant.yaml

  # Policy tests for the same grant
  kubectl toolcrib propose otter -f history.jsonl --against pond/ -o tests > tests/otter.yaml

It applies nothing: review the file first. Tools that only failed or were denied are left out. Arguments are
limited from 20 calls of a tool on: one value is pinned, up to 8 are listed; text and numbers stay open.

Exit codes: 0; 1 if no call succeeded, or the command failed; 2 for a wrong command line, files that
cannot be read, or a span without calls of the agent; 3 if the record of a pod begins after --since.";

pub const VERIFY: &str = "\
Examples:
  # Was a line changed or removed?
  kubectl toolcrib audit verify history.jsonl.1 history.jsonl stdout.log

  # Was its end cut off? The operator keeps the last line of each pod
  kubectl toolcrib audit verify history.jsonl.1 history.jsonl --agent executor -n trading

Bodies of requests and answers are in no chain, and without a head (--agent, or --head that you kept) a cut or
rewritten end is not seen.

Exit codes: 0; 1 if the record cannot be read; 2 for a wrong command line, or files that cannot be
read; 3 if a line is missing or changed.";

pub const WHY: &str = "\
Examples:
  # A call of a running pod, whose id `audit` shows
  kubectl toolcrib why -n trading 7f3c-1-0

  # With the line, commit and author of the grant, and the user whom the API server knew
  kubectl toolcrib why -n trading 7f3c-1-0 --files deploy/ --audit-log audit.log

  # Without a cluster: a saved record, and the files that were applied
  kubectl toolcrib why 7f3c-1-0 -f history.jsonl --files deploy/

The call, its rule, its approval and its policies are those of the record. The credential is that of now.
The answer says whether the grant still has the rule, and which policies match now if they are others.
Without --files and --audit-log the person is not known.

Exit codes: 0; 1 if no call has this id, or the logs cannot be read; 2 for a wrong command line, or
files that cannot be read; 3 if the record of a pod begins after --since.";

pub const RUN: &str = "\
Examples:
  # A service and a model on this machine
  kubectl toolcrib run -f desk/ --agent analyst --at trading-api=http://127.0.0.1:4000 --at provider:anthropic=http://127.0.0.1:8080/v1 -- python3 agent.py

  # A credential from a variable, which the program does not get
  kubectl toolcrib run -f desk/ --agent analyst --secret trading/anthropic/key=env:ANTHROPIC_API_KEY -- python3 agent.py

About a call that needs an approval, it asks on the terminal, never on standard input: y or yes runs the
call once, everything else denies it. Without a terminal the call is denied.

Exit codes: the program's own; 1 if the agent has no files for a mediator; 2 for
a wrong command line, or files that cannot be read.";

pub const COMPLETION: &str = "\
Examples:
  # For `kubectl toolcrib`: kubectl runs a program of this name on the PATH
  kubectl toolcrib completion kubectl > ~/.local/bin/kubectl_complete-toolcrib
  chmod +x ~/.local/bin/kubectl_complete-toolcrib

  # For `kubectl-toolcrib`, in a shell
  source <(kubectl toolcrib completion bash)";

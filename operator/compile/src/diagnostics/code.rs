//! The closed list of findings: name, meaning, cause and cure.
//!
//! One enum for the CLI, condition and event reasons, metric labels and the reference. Not here: a
//! finding about a certain object, which is a [`crate::Diagnostic`].
//!
//! Invariant: each declared code has all of its texts, and some case produces it
//! (`tests/codes.rs`).

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// A requested part is withheld.
    Error,
    /// Nothing is withheld; a person should look at it.
    Warning,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// The condition that a finding belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Concern {
    /// `Accepted`: the object's own spec.
    Spec,
    /// `Resolved`: an object that the spec refers to.
    Reference,
}

/// Declares the enum, its names and the list of all codes together, so none can be forgotten.
macro_rules! codes {
    ($(
        #[doc = $meaning:literal]
        $name:ident: $severity:ident, $concern:ident,
        cause $cause:literal
        cure $cure:literal
    )+) => {
        /// All findings. The names are condition reasons, event reasons and metric labels: stable,
        /// CamelCase.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $meaning] $name,)+
        }

        impl Code {
            pub const ALL: &'static [Code] = &[$(Code::$name,)+];

            pub fn name(self) -> &'static str {
                match self {
                    $(Code::$name => stringify!($name),)+
                }
            }

            pub fn severity(self) -> Severity {
                match self {
                    $(Code::$name => Severity::$severity,)+
                }
            }

            pub fn concern(self) -> Concern {
                match self {
                    $(Code::$name => Concern::$concern,)+
                }
            }

            /// The meaning of the code, in one sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Code::$name => $meaning.trim_ascii(),)+
                }
            }

            /// The usual cause.
            pub fn cause(self) -> &'static str {
                match self {
                    $(Code::$name => $cause,)+
                }
            }

            /// The cure.
            pub fn cure(self) -> &'static str {
                match self {
                    $(Code::$name => $cure,)+
                }
            }
        }
    };
}

codes! {
    /// The object cannot be decoded as its kind.
    Undecodable: Error, Spec,
    cause "A field holds another type than its kind has, or the object is nested too deep. No agent gets anything of it; all other objects go on."
    cure "Correct the field as the message says. A text that may be a credential is not repeated there."

    /// The object takes more memory than the operator keeps of one object, of one namespace, or of all together.
    TooExpensive: Error, Spec,
    cause "The object is too large, or the older objects of its namespace take the whole budget already, or all namespaces together need more than the operator has and this one is over its equal share. No agent gets anything of it, as if it did not exist; an Agent keeps no tool, and a NetworkPolicy that stands, stays. All other objects go on."
    cure "Make the object smaller, for instance by splitting a Surface's descriptor; or delete or shrink older objects of the namespace; or raise the chart's `controller.resources.limits.memory`, a third of which is for all objects. It is looked at again by itself."

    /// A name is not what its place allows.
    InvalidName: Error, Spec,
    cause "Names of surfaces and agents are DNS labels, since `<surface>.<tool>` must be unambiguous; names of tools and feeds are at most 128 letters, digits, '_', '-', '.' or '/'."
    cure "Rename it, or give a surface another name for this agent with `as`."

    /// A value is outside of what its field allows.
    InvalidValue: Error, Spec,
    cause "A duration without a unit, a number of 0, or a field that another one needs is missing. The built-in value is in force where there is one."
    cure "Write a value as the message says."

    /// A field is valid, but this release serves nothing of it.
    NotServedYet: Error, Spec,
    cause "The API has the field for a later release. What would be less restricted without it is withheld; the rest is in force as the message says."
    cure "Remove the field, or use what the message names instead."

    /// The same thing is declared twice.
    Duplicate: Error, Spec,
    cause "Two entries or objects have the same name; the first one counts (of objects in files: the last one)."
    cure "Remove one of them, or rename it."

    /// The field is not known to this kind.
    UnknownField: Warning, Spec,
    cause "A misspelt field, or one of another release. The API server drops it."
    cure "Correct the spelling; `kubectl explain KIND.spec` lists the fields."

    /// A number would be changed by the API server's own way of printing it.
    NumberRewritten: Warning, Spec,
    cause "A descriptor holds a number with more digits than a 64-bit float keeps; the API server stores the rounded one."
    cure "Write fewer digits, or a string."

    /// The descriptor's version is not one that this release reads.
    UnsupportedDescriptorVersion: Error, Spec,
    cause "`version` is neither 1 nor 2. Nothing of the descriptor is used, since a later version may restrict what an earlier one allows."
    cure "Write the descriptor in version 2."

    /// The descriptor's version does not have this field; it is ignored.
    DescriptorFieldIgnored: Warning, Spec,
    cause "`tools`, `mcp` and `auth.env` came with version 2, and the descriptor says version 1 or none."
    cure "Set `version: 2` in the descriptor."

    /// The descriptor's ConfigMap or its key was not found.
    DescriptorNotFound: Error, Reference,
    cause "`descriptorFrom` names a ConfigMap or a key that does not exist in the surface's namespace, or a granted surface has no descriptor at all."
    cure "Create the ConfigMap with that key, or set `spec.descriptor`."

    /// The descriptor cannot be read as one.
    DescriptorInvalid: Error, Spec,
    cause "It is not a JSON object, is nested too deep, or one of its parts has the wrong type; that part is left out."
    cure "Correct what the message names."

    /// The descriptor's ConfigMap could not be read now.
    DescriptorUnknown: Error, Reference,
    cause "The API server refused, or the namespace is not among those that the operator may read (chart value `secretNamespaces`)."
    cure "Give the operator the namespace, or wait: it looks again by itself."

    /// A ConfigMap could not be read now; what it held before stays in use.
    LastGoodInUse: Warning, Reference,
    cause "The API server refused or could not be asked for the descriptor's or the CA bundle's ConfigMap. A change of it since then is not in force. The operator remembers what it read only while it runs: after a restart, what cannot be read is withheld."
    cure "Give the operator the right to read ConfigMaps of that namespace (chart value `secretNamespaces`), or wait: it looks again by itself."

    /// The grant pins another descriptor than the surface has.
    DescriptorDigestMismatch: Error, Reference,
    cause "The surface's descriptor changed after the grant was written. The pinned tools are withheld."
    cure "Review the change (`kubectl toolcrib inspect SURFACE`), then set `descriptorDigest` to the surface's `status.descriptorDigest`."

    /// The skill's file is not in the ConfigMap.
    SkillNotFound: Warning, Reference,
    cause "The descriptor's `skill` is a path, whose last part must be a key of the descriptor's ConfigMap; an inline descriptor has no files."
    cure "Add the key to the ConfigMap, or write the text under `skillText`."

    /// A tool's declaration is not usable.
    InvalidTool: Error, Spec,
    cause "The tool lacks a name, a method or a path, or its path has a placeholder that is not a property of its `inputSchema`. The tool is withheld, the others stay."
    cure "Correct the tool in the descriptor as the message says."

    /// A tool would set a header or a parameter that decides identity or framing.
    HeaderMappingRefused: Error, Spec,
    cause "A descriptor maps arguments to something like `Authorization`, `Host` or `X-Claw-Id`, or `headerName` or `idempotencyHeader` is such a header. What the model says must not choose them."
    cure "Remove the mapping; credentials belong to the Surface's `auth`."

    /// A tool's inputSchema is not a JSON Schema that can be used.
    InvalidSchema: Error, Spec,
    cause "The schema is missing, is not about an object, is not a valid JSON Schema, or refers to itself without end; it declares two arguments that some services read as one (`amount` and `AMOUNT`), or one that they read as `claw_id`; or it marks arguments for headers (`x-mcp-header`) in a way that MCP does not know."
    cure "Correct the schema; `{\"type\": \"object\"}` is one without arguments."

    /// A tool that is called with a body declares no arguments, so that calls with any are refused.
    NoArgumentsDeclared: Warning, Spec,
    cause "The inputSchema has no properties and does not say additionalProperties. Arguments that a schema does not declare never reach an HTTP service."
    cure "Declare the arguments under properties. Write `additionalProperties: true` if the service takes any, or `false` if it takes none."

    /// `required` names an argument that `properties` do not describe.
    RequiredNotDescribed: Warning, Spec,
    cause "`required` of the inputSchema names an argument that its `properties` do not have. The model must send it, is not told what it is, and any value passes."
    cure "Correct the name, or declare the argument under properties."

    /// A part of the path looks like a placeholder of another notation, and is sent as it is written.
    PathSentAsWritten: Warning, Spec,
    cause "Many frameworks write a placeholder as `:id`; a descriptor writes it as `{id}`. All else in the path is sent to the service as it is."
    cure "Write `{id}`, and declare the argument under properties."

    /// A text for the model holds characters that nobody sees; they are left out.
    HiddenCharacters: Warning, Spec,
    cause "The descriptor holds controls, marks that turn the direction of writing, joiners or tags: a reviewer does not see them, and a model reads them. They may have come with text that was copied, or hide instructions."
    cure "Read what the text says without them, and remove them from the descriptor."

    /// A tool's inputSchema is over a bound on size, nodes or depth.
    SchemaTooLarge: Error, Spec,
    cause "The schema is larger than 64 KiB, deeper than 48 levels, expands to too many nodes once its references are followed, applies more than 32 schemas to one value one after another, or has long names above many parts. Each request would carry it to the model."
    cure "Simplify the schema: fewer levels, properties and references."

    /// A pattern of a tool's inputSchema cannot be matched in bounded time and memory.
    UnsupportedPattern: Error, Spec,
    cause "A `pattern`, or a name in `patternProperties`, uses a lookahead, lookbehind or backreference, is longer than 1024 bytes, or repeats so much that it expands to too many states; or the schema has more than 64 different patterns. The tool is withheld: without the pattern its arguments would be less restricted than they were reviewed."
    cure "Rewrite the pattern as the message says, bound lengths by `maxLength`, or remove the pattern and let the service check the value."

    /// A tool's inputSchema refers to another document.
    RemoteReference: Error, Spec,
    cause "A `$ref` names a file or a url, which a validator would fetch."
    cure "Put the definition under `$defs` of the same schema and refer to `#/$defs/NAME`."

    /// A feed's declaration is not usable.
    InvalidFeed: Error, Spec,
    cause "The feed lacks a name or a path, its path has another placeholder than `{claw_id}`, or its `ttl` is not between 1 and 86400 seconds."
    cure "Correct the feed in the descriptor as the message says."

    /// A surface that is named does not exist.
    SurfaceNotFound: Error, Reference,
    cause "The name in an Agent, grant or ToolDefaults is not that of a Surface in the same namespace. For a Surface of another namespace see `ConsentMissing`."
    cure "Create the Surface, or correct the name."

    /// A granted surface is not among the agent's surfaces.
    SurfaceNotDeclared: Error, Reference,
    cause "Both layers are needed: a grant says what may be called, the Agent's `spec.surfaces` what is within reach at all."
    cure "Add the surface to the Agent's `spec.surfaces`, or remove the rule."

    /// ToolDefaults name a surface that this agent does not declare; the agent gets none of it.
    DefaultsSurfaceNotDeclared: Warning, Reference,
    cause "ToolDefaults apply to every agent of the namespace, and this one does not reach the surface."
    cure "Nothing, unless the agent should have it: then add the surface to its `spec.surfaces`."

    /// An agent relies on ToolDefaults that were not found.
    DefaultsNotFound: Error, Reference,
    cause "The agent says `toolDefaults: Include`, and the namespace has no ToolDefaults named `default`. Their `maxTier` could be any, so the lowest is in force; a NetworkPolicy that stands, stays."
    cure "Create the ToolDefaults, set `policy.maxTier` on the Agent, or leave `toolDefaults` out: then they count if they exist."

    /// Another namespace's surface does not consent, or was not found.
    ConsentMissing: Error, Reference,
    cause "The surface's `spec.consumers.namespaces` does not cover the agent's namespace; left out, it covers only the surface's own. The answer is the same where no such surface exists, so that nobody can try out which surfaces others have."
    cure "Check the name, and ask the surface's owner to allow the namespace there."

    /// A granted tool is not in the surface's descriptor.
    ToolNotFound: Error, Reference,
    cause "The name is misspelt, or the tool left the descriptor."
    cure "Correct or remove the name; `kubectl toolcrib inspect SURFACE` lists the tools."

    /// Limits of a grant on arguments cannot be used; its entry gives nothing.
    InvalidCondition: Error, Spec,
    cause "The schema under `arguments` has other keywords than `properties` and `required`, or is not a valid JSON Schema, or is too large together with the pins; or a pinned value is one that the tool refuses; or an expression under `when` is not of the part of CEL that is known."
    cure "Correct the value, the schema or the expression as the message says."

    /// An expression of a grant could take too many steps; its entry gives nothing.
    ExpressionTooExpensive: Error, Spec,
    cause "The mediator evaluates at most 50,000 steps at each call, and the expression under `when` could take more for lists of 50 elements."
    cure "Walk fewer lists in each other, or write several conditions: each has steps of its own."

    /// A grant limits an argument that the tool does not declare; the entry does not give that tool.
    NotInSchema: Error, Reference,
    cause "The name under `pin`, `schema.properties` or `schema.required`, or behind `args` in an expression of `when`, is misspelt, or the argument left the tool's inputSchema. Without it the limit would mean nothing."
    cure "Correct the name; `kubectl toolcrib inspect SURFACE` shows the schemas. Give tools without that argument by an entry of their own."

    /// The tool's schema and the limits of a grant leave no value for an argument.
    NothingLeft: Error, Reference,
    cause "A bound excludes all that the tool accepts, the listed values have none in common, an argument is required and forbidden, or the schema refuses the pinned value. The entry does not give that tool."
    cure "Correct the limit that the message names."

    /// More rules give a tool, or an agent's tools, than are kept; those of the last grants in name order are withheld.
    TooManyRules: Error, Spec,
    cause "A tool has at most 32 rules, and an agent 1,024: the mediator compares a call with each of them. Entries without limits come first."
    cure "Merge grants with the same limits, or name fewer tools in them."

    /// A granted feed is not in the surface's descriptor.
    FeedNotFound: Error, Reference,
    cause "The name is misspelt, or the feed left the descriptor."
    cure "Correct or remove the name; `kubectl toolcrib inspect SURFACE` lists the feeds."

    /// An agent that is named does not exist.
    AgentNotFound: Error, Reference,
    cause "A grant names an Agent that is not in its namespace. Grants never reach agents of another one."
    cure "Create the Agent, or correct the name."

    /// A grant's selector cannot be used; the grant is for the agents that it names alone.
    SelectorRefused: Error, Spec,
    cause "The selector is empty, names a label that does not begin with `grants.toolcrib.dev/`, or uses an operator that selects agents by a label which they lack. The API server refuses such a grant."
    cure "Correct the selector as the message says."

    /// A grant selects agents by labels, and selectors are off; it is for the agents that it names alone.
    SelectorsOff: Error, Reference,
    cause "Users who may edit an Agent could give it any tool by a label, so the chart has an admission policy, `NAME-selectors`, that lets only users who may create ToolGrants set labels with `grants.toolcrib.dev/`. The controller asks the API server by dry run whether it refuses the controller such a label, and it does not, or the question failed."
    cure "Install the chart's policy and its binding again (`helm upgrade`); the controller asks again within seconds. Until then name the agents under `agents`."

    /// A grant's selector selects no agent.
    SelectsNoAgent: Warning, Reference,
    cause "No Agent of the grant's namespace has all labels of `agentSelector`, or the value is misspelt. Labels of Agents count, not those of pods."
    cure "Label the Agents (`kubectl label agent NAME grants.toolcrib.dev/…=…`), or correct the selector."

    /// The source Secret was not found.
    SecretNotFound: Error, Reference,
    cause "A `secretKeyRef` names a Secret that does not exist in the namespace of the object that names it."
    cure "Create the Secret, or correct the name."

    /// The source Secret's owner did not label it as a credential.
    SecretNotLabelled: Error, Reference,
    cause "Without the label, users who may create a Surface could send any Secret of the namespace anywhere."
    cure "Label the Secret `toolcrib.dev/credential=true`, if it is meant to be sent."

    /// The source Secret does not name the host it would be sent to.
    SecretHostNotAllowed: Error, Reference,
    cause "The annotation `toolcrib.dev/hosts` of the Secret does not allow where the surface or provider leads. `SCHEME://HOST[:PORT]` allows that alone, `NAME.NAMESPACE.svc` the Service's ports, any other bare host https on port 443."
    cure "If the credential may go there, run the command that the message shows. [Where a credential may go](../guide.md#where-a-credential-may-go) has the rule."

    /// The source Secret does not name the private CA of where it would be sent.
    SecretCaNotAllowed: Error, Reference,
    cause "The surface or provider trusts a CA of its own (`tls.caFrom`), and the annotation `toolcrib.dev/ca` of the Secret does not list it. A holder of that CA's key can pass for the host and read the credential."
    cure "If that CA may vouch for the host, run the command that the message shows. [Where a credential may go](../guide.md#where-a-credential-may-go) has the rule."

    /// The source Secret has no such key.
    SecretKeyMissing: Error, Reference,
    cause "The key is misspelt, or of another auth type: Basic reads `username` and `password`, OAuth `client_id` and `client_secret`."
    cure "Add the key to the Secret, or correct its name."

    /// Nothing says which key of the source Secret is meant.
    SecretKeyUnspecified: Error, Spec,
    cause "The `secretKeyRef` has no `key`, and the descriptor no `auth.env` to take it from."
    cure "Name the key in the `secretKeyRef`."

    /// The source Secret could not be read now.
    SecretUnknown: Error, Reference,
    cause "The API server refused or could not be asked, and no value of the same reference was compiled before."
    cure "Give the operator the right to read Secrets of that namespace (chart value `secretNamespaces`), or wait: it looks again by itself."

    /// The surface has no credential for an agent without its own.
    NoAgentCredential: Error, Reference,
    cause "The surface has `fallback: Deny`, or credentials for single agents only, and none for this one."
    cure "Add the agent to the surface's `spec.auth.perAgent`, or set `secretKeyRef` at the surface in the Agent."

    /// The surface's credential is not shared with other namespaces.
    CredentialNotShared: Error, Reference,
    cause "Consent to call is not consent to hold: `consumers.credentials` of the surface is not `Share`."
    cure "Set `secretKeyRef` at the surface in the Agent, or have the surface's owner share the credential."

    /// The descriptor asks for a credential and the Surface names none; calls go without.
    NoCredential: Warning, Spec,
    cause "The descriptor has `auth`, the Surface has no `spec.auth`."
    cure "Set `spec.auth.secretKeyRef` of the Surface."

    /// The Service was not found.
    ServiceNotFound: Error, Reference,
    cause "`spec.service` names a Service that does not exist in the surface's namespace."
    cure "Create the Service, or correct the name."

    /// The Service has no such port.
    ServicePortNotFound: Error, Reference,
    cause "`spec.service.port` is not a port of the Service (its own, not the pods' target port)."
    cure "Write one of the ports that the message lists."

    /// The url leads to a Service of the same namespace that has no such port.
    UrlPortNotFound: Warning, Reference,
    cause "The port of the url (80 or 443 if it names none) is not one of the Service's own ports, so connections are refused or time out."
    cure "Write one of the Service's ports, as `kubectl get service` lists them; not the pods' target port."

    /// The host of a url is the name of a Service of the object's namespace that was not found.
    UrlServiceNotFound: Warning, Reference,
    cause "The host of the url is `NAME.NAMESPACE.svc`, or a name without a dot, and the object's namespace has no such Service, so the name does not resolve."
    cure "Correct the name, or create the Service. For files whose Services are elsewhere, `--assume-services`."

    /// An ExternalName Service would let its author choose the destination.
    ExternalNameRefused: Error, Reference,
    cause "Users who may change the Service could point credentials at any host."
    cure "Name the host in `spec.url`."

    /// The url's host is taken as a public name, and a Service has the same one.
    NameTakenAsPublic: Warning, Reference,
    cause "A host of two labels, like `NAME.NAMESPACE`, stands for a public name. Mediators try no search domains, since other namespaces could answer there."
    cure "For the Service write `NAME.NAMESPACE.svc`, or `spec.service` in a Surface of its namespace. For the public host write a dot at its end."

    /// The address is one that no surface or provider may have.
    AddressRefused: Error, Spec,
    cause "It is not http or https, holds a password or a query, or leads to the pod itself, to the node's metadata, to the API server or to the operator."
    cure "Name another address."

    /// The CA bundle was not found, or is not readable.
    CaNotFound: Error, Reference,
    cause "`tls.caFrom` names a ConfigMap or a key that does not exist. Nothing is called: falling back to public roots would trust others than the owner chose."
    cure "Create the ConfigMap with the bundle under that key."

    /// The CA bundle holds no certificate, or one that cannot be decoded.
    CaInvalid: Error, Reference,
    cause "The mediator trusts the certificates of a bundle all together or not at all, so that none is missed silently. A part that is cut off, a line that is lost, or OpenSSL's form `TRUSTED CERTIFICATE` cannot be used."
    cure "Correct or remove the certificate that the message numbers: `openssl crl2pkcs7 -nocrl -certfile FILE | openssl pkcs7 -print_certs -noout` lists those of a good bundle."

    /// A destination could not be opened narrowly; the NetworkPolicy is wider than the objects.
    EgressNotNarrowed: Warning, Spec,
    cause "With `egress: Declared`, a url by name, or a Service without pods of its own, has no addresses that a NetworkPolicy could name. Its port is open to every address outside the cluster's ranges."
    cure "Name a Service that selects pods, or a literal address; what is inside the cluster needs `extraEgress`."

    /// The provider may be asked to execute tools, and that is refused all the same.
    ProviderToolsRefused: Warning, Spec,
    cause "`policy.providerTools: Allow` is written, and Refuse is in force: the Agent or its ToolDefaults say so, or `egress` is Declared. With Allow the model's provider could reach for the agent what its pods may not."
    cure "Remove the field; or remove Refuse, or set `egress: Unrestricted`, if the provider may execute tools and fetch urls."

    /// `extraEgress` is set, and the agent's network is not restricted.
    ExtraEgressIgnored: Warning, Spec,
    cause "`extraEgress` adds to the NetworkPolicy of `egress: Declared`, and there is none."
    cure "Set `egress: Declared`, or remove `extraEgress`."

    /// A grant tries out limits of a tool that another grant limits: neither refuses a call.
    AuditLiftsLimits: Warning, Spec,
    cause "Of a tool with several rules, a call runs if one rule lets it. A rule with `enforcement: Audit` lets calls run that its schema and conditions refuse, so the limits of other grants refuse nothing either."
    cure "Remove `enforcement: Audit`, or the other grant, when the trial is over."

    /// A person must approve each call of the tool, although its grants may not ask for that.
    NeedsApproval: Warning, Spec,
    cause "The tool is Elevated: its annotations say that it is destructive or needs a confirmation, or `spec.tiers` says Elevated. Or a ClusterToolPolicy asks by `requireApproval`."
    cure "Bind the chart's role for approvers to people in the agent's namespace. If an Elevated tool is not that dangerous, lower its tier in the Surface's `spec.tiers`."

    /// The tool is said to be ReadOnly and is called with PUT, PATCH or DELETE: its tier is System.
    TierRaised: Warning, Spec,
    cause "The tool's annotations or `spec.tiers` say ReadOnly, and its HTTP method changes what the path names. The mediator's client for ReadOnly tools cannot send that method."
    cure "Remove the hint, or write the tier that the tool has in `spec.tiers`. If the tool only reads, have it called with GET, HEAD or POST."

    /// A tool that is called with POST is ReadOnly by its annotation alone.
    ReadOnlyByPost: Warning, Spec,
    cause "A POST may read or write, which only the service's author knows, and nothing but the descriptor says that this one reads. The tool works, and its tier is ReadOnly."
    cure "Write `ReadOnly` under the tool's name in `spec.tiers` of the Surface if it changes nothing, as a search does. Otherwise remove the annotation."

    /// The tool's tier is above the agent's maxTier.
    TierAboveMaximum: Warning, Spec,
    cause "`policy.maxTier` of the Agent or of the namespace's ToolDefaults is lower than the tool's tier. Where neither says, it is System."
    cure "Raise `maxTier`, or leave the tool out of the grant. An Elevated tool needs `maxTier: Elevated` in so many words."

    /// A ClusterToolPolicy withholds the tool or feed from the agent.
    DeniedByPolicy: Warning, Spec,
    cause "An admin of the cluster denies the tool, its surface or its host, or tools of its tier, to agents of this namespace. No grant lifts that. `kubectl get ctp` lists the policies, and `status.policies` of the Agent those that match it."
    cure "Leave the tool out of the grant, or ask an admin of the cluster to change the policy that the message names."

    /// The agent has a tool or feed that a ClusterToolPolicy would withhold if it were not tried out.
    PolicyWouldDeny: Warning, Spec,
    cause "A ClusterToolPolicy that matches the agent has `enforcement: Audit`. Calls of the tool run, and the record has `would_deny`."
    cure "Leave the tool out of the grant, or tell an admin of the cluster that the agent needs it, before the policy is enforced."

    /// A ClusterToolPolicy does not allow a model, so the agent's mediators refuse it.
    ModelDeniedByPolicy: Warning, Spec,
    cause "`spec.models.allowed` of a ClusterToolPolicy that matches the agent has no entry for the model, or for any model of the ModelProvider. `spec.models` of the Agent does not lift that. Without its default, an agent's requests that name no model are refused."
    cure "Name models that the policy allows in `spec.models`, or ask an admin of the cluster to change the policy that the message names."

    /// A ClusterToolPolicy suspends the agent: it has no tool, feed and model provider, and its mediators refuse every request.
    SuspendedByPolicy: Warning, Spec,
    cause "`spec.suspend` of a ClusterToolPolicy that matches the agent is true. `spec.suspend` of the Agent does not lift that."
    cure "Ask an admin of the cluster, who may set `spec.suspend` of the policy to false."

    /// A ClusterToolPolicy cannot be read, and no earlier form of it is known, so agents are not compiled.
    PolicyUnreadable: Error, Reference,
    cause "The policy was written by a later release, or is over a memory budget, and this process of the operator has read no earlier form. It may restrict any agent, so every agent keeps what was compiled before: nothing is added, deleted grants and rotated Secrets reach no pod, and a new agent gets nothing. `spec.suspend` of an Agent still stops it."
    cure "Correct the policy as its status says, or delete it, which lifts what it restricts."

    /// The agent holds tools and no provider serves a model for it.
    NoModelProvider: Error, Spec,
    cause "No usable ModelProvider of the agent's namespace is selected by its models; tools that no model can call are a mistake."
    cure "Create a ModelProvider in the namespace, or correct `spec.models`."

    /// The agent holds no tools, and no provider serves a model for it.
    NoModel: Warning, Spec,
    cause "No usable ModelProvider of the agent's namespace is selected by its models, so its mediators refuse every request for a model with 403 `model_not_allowed`."
    cure "Create a ModelProvider in the namespace, or correct `spec.models`; or set `mode: Native` if its runner gets its model from elsewhere."

    /// The agent is suspended: it has no tool, feed and model provider, and its mediators refuse every request.
    AgentSuspended: Warning, Spec,
    cause "`spec.suspend` of the Agent is true. Its grants stay as they are."
    cure "`kubectl toolcrib resume agent/NAME`, or set `spec.suspend` to false; the annotation `toolcrib.dev/suspend-reason` says why it was suspended."

    /// The reason of a suspension is not one short line; users read it shortened.
    SuspendReasonCut: Warning, Spec,
    cause "The annotation `toolcrib.dev/suspend-reason` has several lines, characters that no screen shows, or more than 256 bytes. The suspension itself is in force."
    cure "Write one line of at most 256 bytes."

    /// No provider of the namespace serves this model.
    ModelNotServed: Error, Reference,
    cause "The part before the first '/' is not the name of a usable ModelProvider of the namespace. Or `models` names neither a default nor an allowed model, so none may be asked for."
    cure "Write models as `provider/model`, or create the ModelProvider. Leave `models` out to allow every model of the namespace's providers."

    /// A fallback speaks another dialect than the default; it can never step in.
    FallbackDialectMismatch: Error, Spec,
    cause "Nothing is translated between model APIs."
    cure "Name a fallback whose provider speaks the default's dialect."

    /// The manifest is over its bound; surfaces, then tools, are withheld from the end.
    ManifestTooLarge: Error, Spec,
    cause "The compiled files with their CA bundles, or the skills, are over 700 KiB, or over 960 KiB once credentials are in: a Secret holds at most 1 MiB. Feeds go once no tool is left, and providers that are too much by themselves."
    cure "Grant fewer tools, or shorten schemas, descriptions, skills, CA bundles and credentials."

    /// More tools than the dialect takes; the last tools of the largest surfaces are withheld.
    TooManyTools: Error, Spec,
    cause "OpenAI takes 128 tools in one request, of which 8 are left to the runner's own."
    cure "Grant fewer tools of the largest surface that the message names, or split the agent into several. Each surface keeps its first tools in name order, and no large surface displaces a smaller one."

    /// More feeds than a request shows; the last ones are withheld.
    TooManyFeeds: Error, Spec,
    cause "An agent has at most 32 feeds: a request shows 64 KiB of all of them together."
    cure "Grant the feeds that the agent needs with each request; give the rest as tools."
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Code> for toolcrib_crds::ReasonName {
    fn from(code: Code) -> Self {
        Self(code.name())
    }
}

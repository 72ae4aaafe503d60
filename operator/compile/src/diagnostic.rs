//! What the compiler has to say to a user, as values.
//!
//! A user's mistake is never an `Err`: the broken part is withheld and a [`Diagnostic`]
//! says which field of which object is wrong and what to do. The [`Code`] is one closed
//! enum for the CLI, condition reasons, events and metric labels. Messages hold names,
//! never a credential.

use std::fmt;

use crate::ObjectRef;

/// One finding. The derived order (object, field, code, message) is the order of reports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    pub object: Subject,
    /// Path of the field, as in `kubectl explain`: `spec.descriptor.tools[2].http.path`.
    pub field: String,
    pub code: Code,
    pub severity: Severity,
    /// One sentence that names what is wrong and what to do.
    pub message: String,
}

impl Diagnostic {
    /// Object, field and message, without severity and code.
    pub fn located(&self) -> String {
        located(&self.object, &self.field, &self.message)
    }
}

/// `Surface pond/fish-api: spec.url: what is wrong`.
pub(crate) fn located(object: &Subject, field: &str, message: &str) -> String {
    if field.is_empty() {
        format!("{object}: {message}")
    } else {
        format!("{object}: {field}: {message}")
    }
}

/// The object a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub kind: Kind,
    pub key: ObjectRef,
}

impl Subject {
    pub fn new(kind: Kind, key: &ObjectRef) -> Self {
        Self {
            kind,
            key: key.clone(),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.key)
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (severity, code) = (self.severity.name(), self.code.name());
        write!(f, "{severity}: {code}: {}", self.located())
    }
}

/// The kinds that compile reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Surface,
    Agent,
    ToolGrant,
    ToolDefaults,
    ModelProvider,
    Service,
    Secret,
    ConfigMap,
    Namespace,
}

impl Kind {
    pub const ALL: [Kind; 9] = [
        Kind::Surface,
        Kind::Agent,
        Kind::ToolGrant,
        Kind::ToolDefaults,
        Kind::ModelProvider,
        Kind::Service,
        Kind::Secret,
        Kind::ConfigMap,
        Kind::Namespace,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Surface => "Surface",
            Kind::Agent => "Agent",
            Kind::ToolGrant => "ToolGrant",
            Kind::ToolDefaults => "ToolDefaults",
            Kind::ModelProvider => "ModelProvider",
            Kind::Service => "Service",
            Kind::Secret => "Secret",
            Kind::ConfigMap => "ConfigMap",
            Kind::Namespace => "Namespace",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Something that was asked for is not given.
    Error,
    /// Everything is given; somebody should look.
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

/// Which condition a finding belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Concern {
    /// The object's own spec: `Accepted`.
    Spec,
    /// Something that the object refers to: `Resolved`.
    Reference,
}

/// Declares the enum, its names and the list of all in one place, so that none is forgotten.
macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident: $severity:ident, $concern:ident,)+) => {
        /// Every finding there is. The names are condition reasons, event reasons and metric
        /// labels: stable, CamelCase.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $($(#[doc = $doc])+ $name,)+
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

            /// What the code means, for the reference.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Code::$name => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}

codes! {
    /// The object could not be read as its kind.
    Undecodable: Error, Spec,
    /// A name is not what its place allows.
    InvalidName: Error, Spec,
    /// A value is outside of what its field allows.
    InvalidValue: Error, Spec,
    /// A field is valid, but this release serves nothing of it.
    NotServedYet: Error, Spec,
    /// The same thing is declared twice.
    Duplicate: Error, Spec,
    /// The field is not known to this kind.
    UnknownField: Warning, Spec,
    /// A number would be changed by the API server's own way of printing it.
    NumberRewritten: Warning, Spec,

    /// The descriptor's version is not one that this release reads.
    UnsupportedDescriptorVersion: Error, Spec,
    /// The descriptor's version does not have this field; it is ignored.
    DescriptorFieldIgnored: Warning, Spec,
    /// The descriptor's ConfigMap or its key is not there.
    DescriptorNotFound: Error, Reference,
    /// The descriptor cannot be read as one.
    DescriptorInvalid: Error, Spec,
    /// The descriptor's ConfigMap could not be read now.
    DescriptorUnknown: Error, Reference,
    /// The grant pins another descriptor than the surface has.
    DescriptorDigestMismatch: Error, Reference,
    /// The skill's file is not in the ConfigMap.
    SkillNotFound: Warning, Reference,

    /// A tool's declaration is not usable.
    InvalidTool: Error, Spec,
    /// A tool would set a header or a parameter that decides identity or framing.
    HeaderMappingRefused: Error, Spec,
    /// A tool's inputSchema is not a JSON Schema that can be used.
    InvalidSchema: Error, Spec,
    /// A tool's inputSchema is over a bound on size, nodes or depth.
    SchemaTooLarge: Error, Spec,
    /// A tool's inputSchema refers to another document.
    RemoteReference: Error, Spec,
    /// A feed's declaration is not usable.
    InvalidFeed: Error, Spec,

    /// A surface that is named does not exist.
    SurfaceNotFound: Error, Reference,
    /// A granted surface is not among the agent's surfaces.
    SurfaceNotDeclared: Error, Reference,
    /// ToolDefaults name a surface that this agent does not declare; the agent gets none of it.
    DefaultsSurfaceNotDeclared: Warning, Reference,
    /// Another namespace's surface does not consent.
    ConsentMissing: Error, Reference,
    /// A granted tool is not in the surface's descriptor.
    ToolNotFound: Error, Reference,
    /// A granted feed is not in the surface's descriptor.
    FeedNotFound: Error, Reference,
    /// An agent that is named does not exist.
    AgentNotFound: Error, Reference,

    /// The source Secret is not there.
    SecretNotFound: Error, Reference,
    /// The source Secret's owner did not label it as a credential.
    SecretNotLabelled: Error, Reference,
    /// The source Secret does not name the host it would be sent to.
    SecretHostNotAllowed: Error, Reference,
    /// The source Secret has no such key.
    SecretKeyMissing: Error, Reference,
    /// Nothing says which key of the source Secret is meant.
    SecretKeyUnspecified: Error, Spec,
    /// The source Secret could not be read now.
    SecretUnknown: Error, Reference,
    /// The surface gives nothing to an agent without its own credential.
    NoAgentCredential: Error, Reference,
    /// The surface's credential is not shared with other namespaces.
    CredentialNotShared: Error, Reference,

    /// The descriptor asks for a credential and the Surface names none; calls go without.
    NoCredential: Warning, Spec,

    /// The Service is not there.
    ServiceNotFound: Error, Reference,
    /// The Service has no such port.
    ServicePortNotFound: Error, Reference,
    /// An ExternalName Service would let its author choose the destination.
    ExternalNameRefused: Error, Reference,
    /// The address is one that no surface or provider may have.
    AddressRefused: Error, Spec,
    /// The CA bundle is not there or not readable.
    CaNotFound: Error, Reference,

    /// The tool is Elevated: it is offered, and every call is denied until approvals exist.
    NeedsApproval: Warning, Spec,
    /// The tool's tier is above the agent's maxTier.
    TierAboveMaximum: Warning, Spec,

    /// The agent holds tools and no provider serves a model for it.
    NoModelProvider: Error, Spec,
    /// No provider of the namespace serves this model.
    ModelNotServed: Error, Reference,
    /// A fallback speaks another dialect than the default; it can never step in.
    FallbackDialectMismatch: Error, Spec,

    /// The manifest is over its bound; surfaces, then tools, are withheld from the end.
    ManifestTooLarge: Error, Spec,
    /// More tools than the dialect takes; surfaces, then tools, are withheld from the end.
    TooManyTools: Error, Spec,
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

/// Where findings are collected; knows the object that is being looked at.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    pub fn add(
        &mut self,
        object: &Subject,
        field: impl Into<String>,
        code: Code,
        message: impl Into<String>,
    ) {
        self.0.push(Diagnostic {
            object: object.clone(),
            field: field.into(),
            code,
            severity: code.severity(),
            message: message.into(),
        });
    }

    pub fn extend(&mut self, others: impl IntoIterator<Item = Diagnostic>) {
        self.0.extend(others);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sorted, without repetitions: independent of the order in which things were found.
    pub fn into_sorted(mut self) -> Vec<Diagnostic> {
        self.0.sort();
        self.0.dedup();
        self.0
    }
}

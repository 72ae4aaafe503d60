//! Chooses the credential of the service: the security scheme that most of the tools accept, and
//! the Secret with its values.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use toolcrib_compile::{host_entry, names};

use super::document::{Document, Operation, Version};
use super::options::{Address, SurfaceOptions};
use super::{Remarks, schema::cleaned};

/// Bounds of `spec.auth`.
const MAX_SCOPES: usize = 32;
const MAX_SCOPE_LENGTH: usize = 256;

/// The contents of a Surface's `auth` and its Secret.
#[derive(Debug)]
pub struct Credential {
    /// The name of the security scheme.
    scheme: String,
    auth: Value,
    keys: Vec<&'static str>,
    /// The host that its Secret must allow besides the service's.
    token_host: Option<String>,
    /// A remark for the reviewer, if this credential is chosen.
    look: Option<String>,
}

/// The use of a scheme in the requirements of the tools' operations.
#[derive(Default)]
struct SchemeUse {
    count: usize,
    scopes: BTreeSet<String>,
}

/// Returns the scheme that most of the tools accept.
pub fn credential(
    document: &Document,
    made: &[&Operation<'_>],
    wanted: &SurfaceOptions,
    address: &Address,
    remarks: &mut Remarks,
) -> Option<Credential> {
    let schemes = match document.version {
        Version::Swagger2 => document.root.get("securityDefinitions"),
        Version::OpenApi30 | Version::OpenApi31 => {
            document.root.pointer("/components/securitySchemes")
        }
    };
    let (uses, without) = uses(document, made);
    let mut found: Option<(usize, Credential)> = None;
    for (name, used) in &uses {
        let scheme = schemes
            .and_then(|schemes| schemes.get(name))
            .and_then(|scheme| document.followed(scheme));
        let Some(scheme) = scheme else {
            remarks.look("", format!("the security scheme {name} is not declared"));
            continue;
        };
        match of_scheme(scheme, name, &used.scopes, &base(wanted, address)) {
            Ok(credential) => {
                if found.as_ref().is_none_or(|(most, _)| used.count > *most) {
                    found = Some((used.count, credential));
                }
            }
            Err(kind) => remarks.left_out(
                "",
                format!("the security scheme {name} ({kind}): it cannot be sent"),
            ),
        }
    }
    let (count, credential) = found?;
    let name = &credential.scheme;
    if without > 0 {
        remarks.look(
            "",
            format!("tools that need no credential: {without}; they are sent that of {name} all the same"),
        );
    }
    let others = made.len() - without - count;
    if others > 0 {
        remarks.look(
            "",
            format!("tools that need another credential than {name}: {others}; make a surface of their own of them with --include"),
        );
    }
    Some(credential)
}

/// Counts the operations that each scheme alone can call, and those that need no credential.
fn uses(document: &Document, made: &[&Operation<'_>]) -> (BTreeMap<String, SchemeUse>, usize) {
    let shared = document.root.get("security");
    let mut uses: BTreeMap<String, SchemeUse> = BTreeMap::new();
    let mut without = 0;
    for operation in made {
        let security = operation.value.get("security").or(shared);
        let alternatives = security.and_then(Value::as_array);
        let alternatives: Vec<&serde_json::Map<String, Value>> = alternatives
            .into_iter()
            .flatten()
            .filter_map(Value::as_object)
            .collect();
        if alternatives.is_empty() {
            without += 1;
        }
        // One credential cannot meet a requirement of two schemes at once.
        for alternative in alternatives.into_iter().filter(|all| all.len() == 1) {
            for (name, scopes) in alternative {
                let used = uses.entry(name.clone()).or_default();
                used.count += 1;
                let scopes = scopes.as_array().into_iter().flatten();
                used.scopes
                    .extend(scopes.filter_map(Value::as_str).map(str::to_owned));
            }
        }
    }
    (uses, without)
}

/// Converts a scheme. `Err`: no credential of this kind can be sent.
fn of_scheme(
    scheme: &Value,
    name: &str,
    scopes: &BTreeSet<String>,
    base: &str,
) -> Result<Credential, String> {
    let text = |key: &str| scheme.get(key).and_then(Value::as_str).unwrap_or_default();
    let plain = |auth: Value, keys: Vec<&'static str>| Credential {
        scheme: name.to_owned(),
        auth,
        keys,
        token_host: None,
        look: None,
    };
    match (text("type"), text("scheme").to_ascii_lowercase().as_str()) {
        ("http", "bearer") => Ok(bearer(name, None)),
        ("http", "basic") | ("basic", _) => Ok(plain(
            json!({"type": "Basic"}),
            vec!["username", "password"],
        )),
        ("apiKey", _) if text("in") == "header" => {
            let header = text("name");
            if header.eq_ignore_ascii_case("authorization") {
                return Ok(bearer(
                    name,
                    Some(format!(
                        "the scheme {name} puts a key into Authorization: it is sent as `Bearer KEY`; check that the service takes that"
                    )),
                ));
            }
            Ok(plain(
                json!({"type": "Header", "headerName": header}),
                vec!["token"],
            ))
        }
        ("oauth2", _) => Ok(oauth(scheme, name, scopes, base)),
        ("openIdConnect", _) => Ok(bearer(
            name,
            Some(format!(
                "the scheme {name} is OpenID Connect, whose token endpoint is not in the document: make it spec.auth type OAuth with its tokenUrl, or put a token that lasts into the Secret"
            )),
        )),
        (kind, scheme) => Err(format!("{kind} {scheme}{}", text("in"))),
    }
}

fn bearer(name: &str, look: Option<String>) -> Credential {
    Credential {
        scheme: name.to_owned(),
        auth: json!({"type": "Bearer"}),
        keys: vec!["token"],
        token_host: None,
        look,
    }
}

/// Converts the flow of client credentials, if the scheme has it. All other flows need a person.
fn oauth(scheme: &Value, name: &str, scopes: &BTreeSet<String>, base: &str) -> Credential {
    let flow = match scheme.get("flow").and_then(Value::as_str) {
        // Swagger 2.0 has one flow per scheme.
        Some("application") => Some(scheme),
        Some(_) => None,
        None => scheme.pointer("/flows/clientCredentials"),
    };
    let Some(flow) = flow else {
        return bearer(
            name,
            Some(format!(
                "the scheme {name} is OAuth without client credentials, so a person logs in: put a token that lasts into the Secret"
            )),
        );
    };
    let declared = flow.get("tokenUrl").and_then(Value::as_str);
    let Some(url) = declared.and_then(|declared| token_url(declared, base)) else {
        return bearer(
            name,
            Some(format!(
                "the scheme {name} names no token endpoint that can be asked: make it spec.auth type OAuth with its tokenUrl, or put a token that lasts into the Secret"
            )),
        );
    };
    let mut look = Vec::new();
    if url.scheme() == "http" {
        look.push(format!("client_secret goes to {url} in plain text"));
    }
    let mut auth = json!({"type": "OAuth", "tokenUrl": url.as_str()});
    let fit = scopes.len() <= MAX_SCOPES
        && scopes
            .iter()
            .all(|scope| (1..=MAX_SCOPE_LENGTH).contains(&scope.chars().count()));
    if !fit {
        look.push(format!(
            "the scopes of {name} are more or longer than spec.auth.scopes takes ({MAX_SCOPES} of {MAX_SCOPE_LENGTH} characters): none is asked for"
        ));
    } else if !scopes.is_empty() {
        auth["scopes"] = json!(scopes);
    }
    Credential {
        scheme: name.to_owned(),
        auth,
        keys: vec!["client_id", "client_secret"],
        token_host: host_entry(url.as_str()),
        look: (!look.is_empty()).then(|| look.join("; ")),
    }
}

/// Returns the token URL; a relative one belongs to the service.
fn token_url(declared: &str, base: &str) -> Option<url::Url> {
    let url = url::Url::parse(base).ok()?.join(declared).ok()?;
    let is_whole = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && url.as_str().len() <= 2048;
    is_whole.then_some(url)
}

fn base(wanted: &SurfaceOptions, address: &Address) -> String {
    match address {
        Address::Service { name, port } => format!("http://{name}.{}.svc:{port}", wanted.namespace),
        Address::Url(url) => url.to_string(),
    }
}

impl Credential {
    /// A remark for the reviewer.
    pub fn look(&self) -> Option<&str> {
        self.look.as_deref()
    }

    /// Returns the Surface's `spec.auth`.
    pub fn auth(&self, wanted: &SurfaceOptions) -> Value {
        let mut auth = self.auth.clone();
        auth["secretKeyRef"] = match self.keys.as_slice() {
            [key] => json!({"name": secret_name(wanted), "key": key}),
            _ => json!({"name": secret_name(wanted)}),
        };
        auth
    }

    /// Returns a credential of the same service with a token of the owner, for a token endpoint
    /// that was refused.
    pub fn without_endpoint(self, why: &str, remarks: &mut Remarks) -> Self {
        let why = cleaned(why, "", remarks);
        remarks.look(
            "",
            format!(
                "the token endpoint of {} is none that can be asked ({why}): put a token that lasts into the Secret",
                self.scheme
            ),
        );
        bearer(&self.scheme, None)
    }

    /// Returns the Secret with variables in place of its values.
    pub fn secret(&self, wanted: &SurfaceOptions, address: &Address) -> Value {
        let service = match address {
            Address::Service { name, .. } => format!("{name}.{}.svc", wanted.namespace),
            Address::Url(url) => host_entry(url.as_str()).unwrap_or_default(),
        };
        let mut hosts = vec![service];
        hosts.extend(
            self.token_host
                .iter()
                .filter(|host| **host != hosts[0])
                .cloned()
                .collect::<Vec<_>>(),
        );
        let data: BTreeMap<&str, String> = self
            .keys
            .iter()
            .map(|key| {
                let variable = format!("{}_{key}", wanted.name)
                    .to_ascii_uppercase()
                    .replace('-', "_");
                (*key, format!("${{{variable}}}"))
            })
            .collect();
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": secret_name(wanted),
                "namespace": wanted.namespace,
                "labels": {names::CREDENTIAL_LABEL: names::TRUE},
                "annotations": {names::HOSTS_ANNOTATION: hosts.join(", ")},
            },
            "stringData": data,
        })
    }
}

fn secret_name(wanted: &SurfaceOptions) -> String {
    format!("{}-credential", wanted.name)
}

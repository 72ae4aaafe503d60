//! Parsers of structured arguments.

use std::fmt;
use std::path::PathBuf;

use clap::ValueEnum;
use jiff::Timestamp;
use toolcrib_compile::SecretKeyRef;
use toolcrib_crds::EgressRule;

use crate::authoring::openapi::Address;

/// `--output` of the verbs that describe a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DescriptionForm {
    /// The Surface as YAML; also the Secret that it needs, without a value
    Surface,
    /// The claw.describe descriptor alone, as JSON
    Descriptor,
}

/// `--dns-egress`: a list of egress rules in one argument.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsEgress(pub Vec<EgressRule>);

impl DnsEgress {
    pub fn parse(text: &str) -> Result<Self, String> {
        let rules = serde_json::from_str(text);
        rules.map(Self).map_err(|error| {
            format!(
                "{error}: write a list of egress rules as JSON, such as \
                 [{{\"ports\":[{{\"port\":53,\"protocol\":\"UDP\"}}]}}]"
            )
        })
    }
}

/// `--now`: a time.
pub fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| {
        "is not a valid time: write it as 2026-12-31T08:00:00Z, or with an offset such as +01:00".to_owned()
    })
}

/// Removes the kind that kubectl takes before a name.
pub fn without_kind(text: &str) -> &str {
    let kinds = ["agent/", "agents/", "agents.toolcrib.dev/"];
    let name = kinds.iter().find_map(|kind| text.strip_prefix(kind));
    name.unwrap_or(text)
}

/// Parses the name of an agent. A name that does not exist is reported later, with the existing
/// names.
pub fn agent(text: &str) -> Result<String, String> {
    match without_kind(text) {
        name if name.contains('/') => Err(
            "is not of the form NAME or agent/NAME: give the namespace with --namespace".to_owned(),
        ),
        name => Ok(name.to_owned()),
    }
}

/// `--describe`: a service and the file of its descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub service: String,
    pub file: PathBuf,
}

impl Description {
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((service, file)) if !service.is_empty() && !file.is_empty() => Ok(Self {
                service: service.to_owned(),
                file: file.into(),
            }),
            _ => Err("is not of the form SERVICE=FILE".to_owned()),
        }
    }
}

/// `--env`: a variable and the key of a Secret that holds its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableFrom {
    pub variable: String,
    pub secret: String,
    pub key: String,
}

impl VariableFrom {
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text
            .split_once('=')
            .and_then(|(variable, from)| Some((variable, from.split_once('/')?)));
        match parts {
            Some((variable, (secret, key)))
                if !variable.is_empty() && !secret.is_empty() && !key.is_empty() =>
            {
                Ok(Self {
                    variable: variable.to_owned(),
                    secret: secret.to_owned(),
                    key: key.to_owned(),
                })
            }
            _ => Err("is not of the form VARIABLE=SECRET/KEY".to_owned()),
        }
    }
}

/// Parses a name that is also valid for a Service.
pub fn dns_label(text: &str) -> Result<String, String> {
    let is_plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = text.len() <= 63
        && text.bytes().next().is_some_and(|c| c.is_ascii_lowercase())
        && text.bytes().next_back().is_some_and(is_plain)
        && text.bytes().all(|c| is_plain(c) || c == b'-');
    if is_label {
        Ok(text.to_owned())
    } else {
        Err("must be at most 63 of a-z, 0-9 and -, with a letter first and no - last".to_owned())
    }
}

pub fn service_address(text: &str) -> Result<Address, String> {
    text.split_once(':')
        .filter(|(name, _)| !name.is_empty())
        .and_then(|(name, port)| {
            Some(Address::Service {
                name: name.to_owned(),
                port: port.parse().ok().filter(|port| *port > 0)?,
            })
        })
        .ok_or_else(|| "is not of the form NAME:PORT".to_owned())
}

/// Parses a URL that holds no credential: URLs are printed and written into objects.
pub fn endpoint(text: &str) -> Result<url::Url, String> {
    let Address::Url(url) = url_address(text)? else {
        return Err("is no URL".to_owned());
    };
    if !(url.username().is_empty() && url.password().is_none()) {
        return Err(
            "holds a credential: give it in a file, with --token-file or --header-file".to_owned(),
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("has a query or a fragment, and a Surface's address has none".to_owned());
    }
    Ok(url)
}

pub fn url_address(text: &str) -> Result<Address, String> {
    if !text.contains("://") {
        return Err(without_scheme(text));
    }
    match url::Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(Address::Url(url)),
        Ok(_) => Err("must begin with http:// or https://".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn without_scheme(url: &str) -> String {
    format!("{url}: has no scheme: write http://{url}, or https://")
}

/// `--at`: an address on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    pub of: AddressTarget,
    pub url: url::Url,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressTarget {
    /// The agent's alias of the surface.
    Surface(String),
    Provider(String),
}

impl fmt::Display for AddressTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Surface(name) => f.write_str(name),
            Self::Provider(name) => write!(f, "provider:{name}"),
        }
    }
}

impl LocalAddress {
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, url) = text
            .split_once('=')
            .ok_or("is not of the form SURFACE=URL")?;
        let of = match name.strip_prefix("provider:") {
            Some(provider) => AddressTarget::Provider(provider.to_string()),
            None => AddressTarget::Surface(name.to_string()),
        };
        if !url.contains("://") {
            return Err(without_scheme(url));
        }
        let url = url::Url::parse(url)
            .map_err(|error| format!("{url}: {error}: wanted http(s)://host:port"))?;
        if !(url.username().is_empty() && url.password().is_none()) {
            return Err(
                "holds a credential, which the mediator takes from the object's Secret: remove it"
                    .to_owned(),
            );
        }
        if !matches!(url.scheme(), "http" | "https") || url.query().is_some() {
            return Err(format!(
                "{url}: wanted http(s)://host:port, and a path where it needs one"
            ));
        }
        Ok(Self { of, url })
    }
}

/// `--secret`: a credential, and where its value is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretFrom {
    pub reference: SecretKeyRef,
    pub value: ValueFrom,
}

/// The source of a value. It is never the value: every process can read arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueFrom {
    Variable(String),
    File(PathBuf),
}

impl SecretFrom {
    pub fn parse(text: &str) -> Result<Self, String> {
        let wanted = "is not of the form NAMESPACE/NAME/KEY=env:VARIABLE or =file:PATH";
        let (reference, value) = text.split_once('=').ok_or(wanted)?;
        let reference = SecretKeyRef::parse(reference).ok_or(wanted)?;
        let value = match value.split_once(':') {
            Some(("env", name)) if !name.is_empty() => ValueFrom::Variable(name.to_string()),
            Some(("file", path)) if !path.is_empty() => ValueFrom::File(path.into()),
            _ => return Err(wanted.to_string()),
        };
        Ok(Self { reference, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_that_of_a_surface_or_a_provider() {
        let place = LocalAddress::parse("provider:den=http://127.0.0.1:9/v1").unwrap();
        assert_eq!(place.of, AddressTarget::Provider("den".into()));
        assert_eq!(
            LocalAddress::parse("pond=http://127.0.0.1:9").unwrap().of,
            AddressTarget::Surface("pond".into())
        );
        for wrong in [
            "pond",
            "pond=127.0.0.1:9",
            "pond=ftp://a",
            "pond=http://a/?q=1",
        ] {
            assert!(LocalAddress::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_endpoint_has_no_credential_query_or_fragment() {
        assert!(endpoint("https://fish.test/mcp").is_ok());
        for wrong in [
            "fish.test/mcp",
            "https://otter@fish.test/mcp",
            "https://fish.test/mcp?key=otter",
            "https://fish.test/mcp#otter",
        ] {
            let error = endpoint(wrong).unwrap_err();
            assert!(!error.contains("otter"), "{error}");
        }
    }

    #[test]
    fn a_secret_is_never_on_the_command_line() {
        assert!(SecretFrom::parse("pond/fish/token=env:FISH").is_ok());
        assert!(SecretFrom::parse("pond/fish/token=file:/run/fish").is_ok());
        for wrong in [
            "pond/fish/token=secret",
            "pond/fish=env:FISH",
            "pond/fish/token=env:",
        ] {
            assert!(SecretFrom::parse(wrong).is_err(), "{wrong}");
        }
    }
}

//! The credential that an agent's calls to a surface carry, and whether its owner allows that
//! route.

use std::collections::{BTreeMap, BTreeSet};

use toolcrib_bounds::headers::may_be_credential;
use toolcrib_crds::{AgentSurface, AuthType, CredentialConsent, Fallback, SecretKey, SurfaceAuth};
use toolcrib_manifest::{Auth, SecretText};

use crate::compilation::{CredentialKind, Source, SourceState};
use crate::diagnostics::finding::Finding;
use crate::routes::address::{self, Address};
use crate::routes::route::{self, Route};
use crate::surface::ResolvedSurface;
use crate::surface::descriptor::DescribedAuth;
use crate::{Code, ObjectRef, Objects, Presence, SecretKeyRef, near};

/// The `auth` of each tool of a surface, and where it came from.
#[derive(Clone, Debug)]
pub(crate) struct Credential {
    pub kind: CredentialKind,
    pub auth: Option<Auth>,
}

/// The Secret references of one compilation, each with its route.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources(pub BTreeMap<SecretKeyRef, Source>);

impl Sources {
    fn add(&mut self, reference: &SecretKeyRef, route: &Route, state: SourceState) {
        self.0
            .entry(reference.clone())
            .or_insert_with(|| Source {
                route: BTreeSet::new(),
                state,
            })
            .route
            .extend(route.record());
    }
}

/// The object at fault: findings about the agent's own reference belong to the Agent.
#[derive(Clone, Debug)]
pub(crate) enum CredentialError {
    OnSurface(Finding),
    OnAgent(Finding),
}

impl CredentialError {
    pub fn finding(&self) -> &Finding {
        match self {
            CredentialError::OnSurface(finding) | CredentialError::OnAgent(finding) => finding,
        }
    }
}

/// The chosen Secret, and the object that names it.
struct ChosenSecret<'a> {
    kind: CredentialKind,
    namespace: &'a str,
    secret: &'a SecretKey,
    /// The field that names the Secret.
    field: String,
    on_agent: bool,
}

/// Resolves the credential in this order: the surface's `perAgent`, the agent's own, the
/// surface's. `consumers.credentials` decides whether an agent of another namespace gets the
/// surface's.
pub(crate) fn resolve(
    objects: &dyn Objects,
    agent: &ObjectRef,
    entry: &AgentSurface,
    entry_field: &str,
    resolved: &ResolvedSurface,
    address: &Address,
    sources: &mut Sources,
) -> Result<Credential, CredentialError> {
    let surface_key = &resolved.subject.key;
    let spec_auth = resolved.surface.spec.auth.as_ref();
    let described = resolved.descriptor().and_then(|found| found.auth.as_ref());
    let chosen = choose(agent, entry, entry_field, surface_key, resolved, spec_auth)?;
    let Some(chosen) = chosen else {
        return Ok(Credential {
            kind: CredentialKind::None,
            auth: None,
        });
    };
    let place = |finding: Finding| {
        if chosen.on_agent {
            CredentialError::OnAgent(finding)
        } else {
            CredentialError::OnSurface(finding)
        }
    };
    let kind = auth_type(spec_auth, described).map_err(CredentialError::OnSurface)?;
    let keys = secret_keys(kind, chosen.secret, described).map_err(|message| {
        place(Finding::new(
            format!("{}.key", chosen.field),
            Code::SecretKeyUnspecified,
            message,
        ))
    })?;
    let secret = ObjectRef::new(chosen.namespace, chosen.secret.name.clone());
    let route = route(objects, resolved, address, kind).map_err(CredentialError::OnSurface)?;
    let placeholders = keys
        .iter()
        .map(|key| {
            let reference = SecretKeyRef::new(secret.clone(), key.clone());
            allow(objects, &reference, &route, &chosen.field, sources)
                .map(|()| reference.placeholder())
                .map_err(place)
        })
        .collect::<Result<Vec<SecretText>, CredentialError>>()?;
    let auth =
        auth(kind, placeholders, spec_auth, described).map_err(CredentialError::OnSurface)?;
    Ok(Credential {
        kind: chosen.kind,
        auth: Some(auth),
    })
}

fn choose<'a>(
    agent: &'a ObjectRef,
    entry: &'a AgentSurface,
    entry_field: &str,
    surface: &'a ObjectRef,
    resolved: &ResolvedSurface,
    auth: Option<&'a SurfaceAuth>,
) -> Result<Option<ChosenSecret<'a>>, CredentialError> {
    let consent = if agent.namespace == surface.namespace {
        CredentialConsent::Share
    } else {
        resolved
            .surface
            .spec
            .consumers
            .as_ref()
            .and_then(|consumers| consumers.credentials)
            .unwrap_or(CredentialConsent::None)
    };
    let per_agent = auth
        .filter(|_| consent != CredentialConsent::None)
        .and_then(|auth| {
            auth.per_agent.iter().enumerate().find(|(_, credential)| {
                credential.agent.name == agent.name
                    && credential
                        .agent
                        .namespace
                        .as_deref()
                        .unwrap_or(&surface.namespace)
                        == agent.namespace
            })
        });
    if let Some((index, credential)) = per_agent {
        return Ok(Some(ChosenSecret {
            kind: CredentialKind::PerAgent,
            namespace: &surface.namespace,
            secret: &credential.secret_key_ref,
            field: format!("spec.auth.perAgent[{index}].secretKeyRef"),
            on_agent: false,
        }));
    }
    if let Some(secret) = &entry.secret_key_ref {
        return Ok(Some(ChosenSecret {
            kind: CredentialKind::PerAgent,
            namespace: &agent.namespace,
            secret,
            field: format!("{entry_field}.secretKeyRef"),
            on_agent: true,
        }));
    }
    let Some(auth) = auth else {
        return Ok(None);
    };
    if auth.fallback == Some(Fallback::Deny) {
        return Err(CredentialError::OnAgent(Finding::new(
            entry_field,
            Code::NoAgentCredential,
            format!(
                "surface {surface} has fallback: Deny and no credential for this agent: add it to the surface's spec.auth.perAgent, or set secretKeyRef here"
            ),
        )));
    }
    match (&auth.secret_key_ref, consent) {
        (Some(secret), CredentialConsent::Share) => Ok(Some(ChosenSecret {
            kind: CredentialKind::Surface,
            namespace: &surface.namespace,
            secret,
            field: "spec.auth.secretKeyRef".to_owned(),
            on_agent: false,
        })),
        (Some(_), CredentialConsent::None | CredentialConsent::PerAgent) => {
            Err(CredentialError::OnAgent(Finding::new(
                entry_field,
                Code::CredentialNotShared,
                format!(
                    "surface {surface} does not share its credential with other namespaces: set secretKeyRef here, or have its owner add the agent to spec.auth.perAgent and set consumers.credentials"
                ),
            )))
        }
        (None, _) => Err(CredentialError::OnAgent(Finding::new(
            entry_field,
            Code::NoAgentCredential,
            format!(
                "surface {surface} has credentials for single agents only, and none for this one: add it to the surface's spec.auth.perAgent, or set secretKeyRef here"
            ),
        ))),
    }
}

/// Returns where the values go. With OAuth, the token endpoint and the service are both
/// destinations: the endpoint sees the secret, the service the token exchanged for it. Both are
/// reached with the surface's CA.
pub(crate) fn route(
    objects: &dyn Objects,
    resolved: &ResolvedSurface,
    address: &Address,
    kind: AuthType,
) -> Result<Route, Finding> {
    let mut destinations = BTreeSet::from([address.destination()]);
    match kind {
        AuthType::OAuth => {
            let namespace = &resolved.subject.key.namespace;
            let auth = resolved.surface.spec.auth.as_ref();
            destinations.insert(token_endpoint(objects, namespace, auth)?.destination());
        }
        AuthType::Bearer | AuthType::Header | AuthType::Basic => {}
    }
    let ca = resolved.ca.as_ref().map_err(Finding::clone)?.as_ref();
    Ok(Route {
        destinations,
        ca: ca.and_then(|ca| ca.private.clone()),
        proxy: None,
        wrong_address: resolved.wrong_address(),
    })
}

fn token_endpoint(
    objects: &dyn Objects,
    namespace: &str,
    auth: Option<&SurfaceAuth>,
) -> Result<Address, Finding> {
    const FIELD: &str = "spec.auth.tokenUrl";
    let url = auth
        .and_then(|auth| auth.token_url.as_deref())
        .ok_or_else(|| {
            Finding::new(
                FIELD,
                Code::InvalidValue,
                "is missing, and type OAuth needs the token endpoint: write its URL, such as https://issuer.example/token",
            )
        })?;
    address::of_url_in(objects, namespace, url).map_err(|finding| finding.within(FIELD))
}

pub(crate) fn auth_type(
    auth: Option<&SurfaceAuth>,
    described: Option<&DescribedAuth>,
) -> Result<AuthType, Finding> {
    if let Some(kind) = auth.and_then(|auth| auth.kind) {
        return Ok(kind);
    }
    match described.and_then(|auth| auth.kind.as_deref()) {
        None | Some("bearer") => Ok(AuthType::Bearer),
        Some("header") => Ok(AuthType::Header),
        Some("basic") => Ok(AuthType::Basic),
        Some("oauth") => Ok(AuthType::OAuth),
        Some(other) => Err(Finding::new(
            "spec.auth.type",
            Code::NotServedYet,
            format!(
                "the descriptor's auth.type {other:?} is not one that this release sends: set type to Bearer, Header, Basic or OAuth"
            ),
        )),
    }
}

/// Returns the keys of the Secret in the order in which [`auth`] takes their values.
pub(crate) fn secret_keys(
    kind: AuthType,
    secret: &SecretKey,
    described: Option<&DescribedAuth>,
) -> Result<Vec<String>, String> {
    match kind {
        AuthType::Bearer | AuthType::Header => secret
            .key
            .clone()
            .or_else(|| described.and_then(|auth| auth.env.clone()))
            .map(|key| vec![key])
            .ok_or_else(|| {
                "is missing, and the descriptor has no auth.env: name the Secret's key".to_owned()
            }),
        AuthType::Basic => Ok(vec!["username".to_owned(), "password".to_owned()]),
        AuthType::OAuth => Ok(vec!["client_id".to_owned(), "client_secret".to_owned()]),
    }
}

pub(crate) fn auth(
    kind: AuthType,
    values: Vec<SecretText>,
    auth: Option<&SurfaceAuth>,
    described: Option<&DescribedAuth>,
) -> Result<Auth, Finding> {
    let mut values = values.into_iter();
    match kind {
        AuthType::Bearer => Ok(Auth::Bearer {
            token: values.next(),
            file: None,
        }),
        AuthType::Header => {
            let header = auth
                .and_then(|auth| auth.header_name.clone())
                .or_else(|| described.and_then(|auth| auth.header.clone()))
                .ok_or_else(|| {
                    Finding::new(
                        "spec.auth.headerName",
                        Code::InvalidValue,
                        "is missing, and type Header needs the header's name: write it, such as X-Api-Key",
                    )
                })?;
            if !may_be_credential(&header) {
                return Err(Finding::new(
                    "spec.auth.headerName",
                    Code::HeaderMappingRefused,
                    format!("{header:?} decides framing or identity: name another header"),
                ));
            }
            Ok(Auth::Header {
                header,
                token: values.next(),
                file: None,
            })
        }
        AuthType::Basic => Ok(Auth::Basic {
            username: values.next().unwrap_or_else(|| SecretText::new("")),
            password: values.next(),
            file: None,
        }),
        AuthType::OAuth => {
            // `route` checks that the URL is set and may be called.
            let url = auth.and_then(|auth| auth.token_url.clone());
            Ok(Auth::Oauth {
                token_url: url.unwrap_or_default(),
                client_id: values.next().unwrap_or_else(|| SecretText::new("")),
                client_secret: values.next(),
                file: None,
                resource: auth.and_then(|auth| auth.resource.clone()),
                scopes: auth.map(|auth| auth.scopes.clone()).unwrap_or_default(),
            })
        }
    }
}

/// Checks that this key's value may take this route, and adds it to the sources.
pub(crate) fn allow(
    objects: &dyn Objects,
    reference: &SecretKeyRef,
    route: &Route,
    field: &str,
    sources: &mut Sources,
) -> Result<(), Finding> {
    let secret = &reference.secret;
    let refuse = |part: &str, code: Code, message: String| {
        Err(Finding::new(format!("{field}.{part}"), code, message))
    };
    let facts = match objects.secret(secret) {
        Presence::Present(facts) => facts,
        Presence::Absent => {
            return refuse(
                "name",
                Code::SecretNotFound,
                format!("Secret {secret} not found: create it, or correct the name"),
            );
        }
        Presence::Unknown(_) => {
            sources.add(reference, route, SourceState::Unknown);
            return Ok(());
        }
    };
    if let Err(refusal) = route::check(objects, secret, &facts, route) {
        return refuse("name", refusal.code, refusal.message);
    }
    if let Some(keys) = &facts.keys
        && !keys.contains(&reference.key)
    {
        // The owner has consented to this route, so the names of the keys may be told.
        let meant = near::other(&reference.key, keys.iter().map(String::as_str));
        return refuse(
            "key",
            Code::SecretKeyMissing,
            format!(
                "Secret {secret} has no key {:?}{meant}: add it, or correct the name",
                reference.key
            ),
        );
    }
    sources.add(
        reference,
        route,
        SourceState::Known {
            uid: facts.uid.clone(),
            resource_version: facts.resource_version.clone(),
        },
    );
    Ok(())
}

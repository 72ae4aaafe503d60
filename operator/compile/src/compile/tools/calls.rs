//! How calls reach a surface: its address and the agent's credential there, and the form of each call.

use toolcrib_manifest::{Auth, Execution, Transport};

use crate::compile::credential::{self, Credential, CredentialError};
use crate::compile::reach::Reach;
use crate::compile::work::Work;
use crate::diagnostics::finding::Finding;
use crate::diagnostics::located;
use crate::routes::address::is_relative;
use crate::surface::descriptor::DescribedTool;
use crate::{Code, Kind, Leads, ObjectRef, Objects, Subject};

/// Returns base URL and credential, or why this agent can call nothing of the surface.
pub(super) fn callable(
    objects: &dyn Objects,
    agent: &ObjectRef,
    reach: &Reach<'_>,
    work: &mut Work,
) -> Result<(String, Credential), (Code, String)> {
    let because = |subject: &Subject, finding: &Finding| {
        let why = located(subject, &finding.field, &finding.message);
        (finding.code, why)
    };
    let surface = &reach.resolved.subject;
    let address = reach
        .resolved
        .address
        .as_ref()
        .map_err(|finding| because(surface, finding))?;
    reach
        .resolved
        .ca
        .as_ref()
        .map_err(|finding| because(surface, finding))?;
    let urls = reach.resolved.surface.urls();
    if let Some(url) = urls.into_iter().find(|url| is_relative(url))
        && reach.foreign
    {
        let message = format!(
            "{url:?} may lead somewhere else in each namespace: its owner must write name.namespace.svc, or for a host outside of the cluster https, or a dot at its end"
        );
        let finding = Finding::new("spec", Code::AddressRefused, message);
        finding.report(surface, &mut work.found);
        return Err(because(surface, &finding));
    }
    let credential = credential::resolve(
        objects,
        agent,
        reach.entry,
        &reach.field,
        &reach.resolved,
        address,
        &mut work.sources,
    )
    .map_err(|refused| {
        let subject = match &refused {
            CredentialError::OnSurface(_) => surface.clone(),
            CredentialError::OnAgent(_) => Subject::new(Kind::Agent, agent),
        };
        refused.finding().report(&subject, &mut work.found);
        because(&subject, refused.finding())
    })?;
    Ok((address.base_url.clone(), credential))
}

pub(super) fn execution(
    reach: &Reach<'_>,
    name: &str,
    described: &DescribedTool,
    base_url: &str,
    credential: &Credential,
) -> Result<Execution, Finding> {
    let base = Execution {
        transport: Transport::Http,
        service: reach.alias.clone(),
        base_url: base_url.to_owned(),
        method: None,
        path: None,
        body: None,
        body_key: None,
        idempotency_header: None,
        tool_name: None,
        auth: credential.auth.clone(),
    };
    match &described.http {
        Some(http) => {
            if let Some(idempotency) = &http.idempotency_header
                && let Some(Auth::Header { header, .. }) = &base.auth
                && idempotency.eq_ignore_ascii_case(header)
            {
                let field = format!("{}.http.idempotencyHeader", described.field);
                let message = "is the header of the Surface's credential: name another header";
                let finding = Finding::new(field, Code::HeaderMappingRefused, message);
                return Err(reach.resolved.in_descriptor(&finding));
            }
            Ok(Execution {
                method: Some(http.method),
                path: Some(http.path.clone()),
                body: http.body,
                body_key: http.body_key.clone(),
                idempotency_header: http.idempotency_header.clone(),
                ..base
            })
        }
        None => {
            let path = reach.resolved.mcp_transport(described)?;
            Ok(Execution {
                transport: Transport::Mcp,
                path: Some(path.to_owned()),
                tool_name: Some(name.to_owned()),
                ..base
            })
        }
    }
}

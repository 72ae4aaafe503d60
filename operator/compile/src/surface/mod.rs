//! Resolves one surface by itself: its descriptor, its address, its CA.
//!
//! Not here: everything that depends on the agent (consent, credentials, grants).

pub(crate) mod descriptor;
pub(crate) mod schema;
pub(crate) mod template;

use std::collections::BTreeMap;
use std::sync::Arc;

use toolcrib_crds::{Surface, TlsSpec};
use toolcrib_manifest::{ReadMethod, Tier};

use self::descriptor::{DescribedTool, Descriptor, Skill};
use crate::diagnostics::finding::{Finding, join};
use crate::names::method_name;
use crate::objects::facts::Material;
use crate::routes::address::{self, Address};
use crate::routes::route::PrivateCa;
use crate::surface::template::is_sent_as_written;
use crate::{Code, Diagnostics, Kind, ObjectRef, Objects, Subject, near};

/// A resolved surface: each part is known, or has the finding that makes it unusable.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedSurface {
    pub subject: Subject,
    pub surface: Arc<Surface>,
    /// `Err`: the finding that makes tools, feeds and skills unknown.
    pub descriptor: Result<Option<Arc<Descriptor>>, Finding>,
    /// The field that holds the descriptor: `spec.descriptor`, or the ConfigMap's key.
    pub descriptor_field: String,
    /// `Err`: the finding that makes calls impossible.
    pub address: Result<Address, Finding>,
    /// PEM bundle. `Err`: the finding that forbids calls.
    pub ca: Result<Option<CaBundle>, Finding>,
    pub skill: Option<String>,
    /// Findings that are in none of the results above.
    findings: Vec<Finding>,
}

/// Certificates that are trusted instead of the public roots.
#[derive(Clone, Debug)]
pub(crate) struct CaBundle {
    pub pem: String,
    /// `None`: the operator's own authority, which is not chosen by the author of an object.
    pub private: Option<PrivateCa>,
}

/// Resolves `surface`, whose key is `key`.
pub(crate) fn resolve(
    objects: &dyn Objects,
    key: &ObjectRef,
    surface: Arc<Surface>,
) -> ResolvedSurface {
    let spec = &surface.spec;
    let mut findings = Vec::new();
    let (descriptor, descriptor_field) = read_descriptor(objects, key, &surface, &mut findings);
    let address = find_address(objects, key, &surface);
    let token_url = spec
        .auth
        .as_ref()
        .and_then(|auth| auth.token_url.as_deref());
    for (field, url) in [
        ("spec.url", spec.url.as_deref()),
        ("spec.auth.tokenUrl", token_url),
    ] {
        let doubt = url.and_then(|url| address::doubt(objects, &key.namespace, url));
        findings.extend(doubt.map(|finding| finding.within(field)));
    }
    let ca = read_ca(objects, &key.namespace, spec.tls.as_ref(), &mut findings)
        .map(|named| named.or_else(|| own_authority(objects, address.as_ref().ok()?)));
    let skill = descriptor
        .as_ref()
        .ok()
        .and_then(Option::as_ref)
        .and_then(|descriptor| skill(objects, key, &surface, descriptor, &mut findings));
    ResolvedSurface {
        subject: Subject::new(Kind::Surface, key),
        surface,
        descriptor,
        descriptor_field,
        address,
        ca,
        skill,
        findings,
    }
}

impl ResolvedSurface {
    pub fn descriptor(&self) -> Option<&Descriptor> {
        self.descriptor.as_ref().ok()?.as_deref()
    }

    /// Why a url of the surface leads elsewhere than it seems, or nowhere.
    pub fn wrong_address(&self) -> Option<String> {
        address::first_wrong(&self.findings)
    }

    /// Upper bound of the memory for compiling the surface, in bytes.
    pub fn weight(&self) -> usize {
        let descriptor = self.descriptor().map_or(0, |descriptor| descriptor.weight);
        let ca = self.ca.as_ref().ok().and_then(Option::as_ref);
        descriptor + ca.map_or(0, |ca| ca.pem.len()) + self.skill.as_ref().map_or(0, String::len)
    }

    /// The tier of a tool: the one in the Surface's `spec.tiers`, else the one of its annotations.
    /// A tool with a writing HTTP method is never ReadOnly.
    pub fn tier(&self, tool: &str, described: &DescribedTool) -> Tier {
        let written = self.written_tier(tool);
        written
            .unwrap_or(described.tier)
            .called_with(described.method())
    }

    /// The tier of the tool in `spec.tiers`.
    fn written_tier(&self, tool: &str) -> Option<Tier> {
        self.surface.spec.tiers.get(tool).map(|tier| (*tier).into())
    }

    /// Warns if a tool is ReadOnly by its annotation alone, or if its method contradicts that.
    fn read_only_findings(&self, name: &str, tool: &DescribedTool) -> Option<Finding> {
        let written = self.written_tier(name);
        let method = tool.method()?;
        if written.unwrap_or(tool.tier) != Tier::ReadOnly {
            return None;
        }
        let spelt = method_name(method);
        let field = match written {
            Some(_) => format!("spec.tiers.{name}"),
            None => join(
                &self.descriptor_field,
                &format!("{}.annotations", tool.field),
            ),
        };
        match (method.reading(), written) {
            (None, _) => Some(Finding::new(
                field,
                Code::TierRaised,
                format!(
                    "says that {name} only reads, and it is called with {spelt}, which writes: its tier is System; if it reads, have it called with GET or POST, else correct this"
                ),
            )),
            (Some(ReadMethod::Post), None) => Some(Finding::new(
                field,
                Code::ReadOnlyByPost,
                format!(
                    "alone says that {name} only reads, and it is called with POST, which may write: confirm it with spec.tiers.{name}: ReadOnly, or remove the annotation"
                ),
            )),
            (Some(ReadMethod::Get | ReadMethod::Head | ReadMethod::Post), _) => None,
        }
    }

    pub fn mcp_path(&self) -> Option<&str> {
        let (_, path) = self.mcp()?;
        Some(path)
    }

    /// Returns the path of the MCP endpoint, and the field that holds it.
    fn mcp(&self) -> Option<(String, &str)> {
        match &self.surface.spec.mcp {
            Some(mcp) => Some(("spec.mcp.path".to_owned(), &mcp.path)),
            None => {
                let path = self.descriptor()?.mcp_path.as_deref()?;
                Some((join(&self.descriptor_field, "mcp.path"), path))
            }
        }
    }

    /// Returns the path of the MCP endpoint for a tool without `http`. `Err`: no such call is
    /// possible.
    pub fn mcp_transport(&self, tool: &DescribedTool) -> Result<&str, Finding> {
        let (field, path) = self.mcp().ok_or_else(|| {
            Finding::new(
                join(&self.descriptor_field, &tool.field),
                Code::InvalidTool,
                "has no http, and the surface no mcp: add one of them",
            )
        })?;
        if is_sent_as_written(path) {
            return Ok(path);
        }
        Err(Finding::new(
            field,
            Code::InvalidValue,
            format!(
                "{path:?} is not a path that is sent as it is written: begin with '/', write letters, digits and -._~!$&'()*+,;=:@%, and no segment \"..\""
            ),
        ))
    }

    /// Converts a finding of the descriptor to one of the Surface.
    pub fn in_descriptor(&self, finding: &Finding) -> Finding {
        finding.clone().within(&self.descriptor_field)
    }

    /// Reports the tools in `spec.tiers` that the descriptor does not have.
    fn report_unknown_tiers(&self, descriptor: &Descriptor, diagnostics: &mut Diagnostics) {
        let tiers = self.surface.spec.tiers.keys();
        for tool in tiers.filter(|tool| !descriptor.tools.contains_key(*tool)) {
            if diagnostics.is_full() {
                return;
            }
            let known = descriptor.tools.keys().map(String::as_str);
            let known = diagnostics.suggestions.meant_or_known(tool, known);
            let message = format!(
                "the descriptor has no tool {tool:?} ({known}): correct the name, or remove it"
            );
            let field = format!("spec.tiers.{tool}");
            diagnostics.add(&self.subject, field, Code::ToolNotFound, message);
        }
    }

    /// Reports all findings of the surface by itself.
    pub fn report(&self, diagnostics: &mut Diagnostics) {
        for finding in &self.findings {
            finding.report(&self.subject, diagnostics);
        }
        for finding in [
            self.descriptor.as_ref().err(),
            self.address.as_ref().err(),
            self.ca.as_ref().err(),
        ]
        .into_iter()
        .flatten()
        {
            finding.report(&self.subject, diagnostics);
        }
        if let Some(descriptor) = self.descriptor() {
            self.report_unknown_tiers(descriptor, diagnostics);
            for finding in &descriptor.findings {
                self.in_descriptor(finding)
                    .report(&self.subject, diagnostics);
            }
            for (name, tool) in &descriptor.tools {
                if let Ok(tool) = tool
                    && let Some(finding) = self.read_only_findings(name, tool)
                {
                    finding.report(&self.subject, diagnostics);
                }
            }
            let over_mcp = descriptor
                .tools
                .values()
                .flatten()
                .filter(|tool| tool.http.is_none());
            for finding in over_mcp.filter_map(|tool| self.mcp_transport(tool).err()) {
                finding.report(&self.subject, diagnostics);
            }
        }
    }
}

/// Cache key of an inline descriptor; descriptors in ConfigMaps have the key of the ConfigMap.
const INLINE: &str = "";

fn read_descriptor(
    objects: &dyn Objects,
    key: &ObjectRef,
    surface: &Arc<Surface>,
    findings: &mut Vec<Finding>,
) -> (Result<Option<Arc<Descriptor>>, Finding>, String) {
    if let Some(inline) = &surface.spec.descriptor {
        let field = "spec.descriptor".to_owned();
        let descriptor = descriptor::read_of(surface, INLINE, inline.get())
            .map(Some)
            .map_err(|finding| finding.within(&field));
        return (descriptor, field);
    }
    let Some(source) = &surface.spec.descriptor_from else {
        return (Ok(None), "spec".to_owned());
    };
    let source = &source.config_map_key_ref;
    let field = "spec.descriptorFrom".to_owned();
    let config_map = ObjectRef::new(key.namespace.clone(), source.name.clone());
    let material = objects
        .config_map(&config_map)
        .material(Code::DescriptorUnknown);
    let descriptor = match material {
        Ok(Some(found)) => {
            let name = join(&field, "configMapKeyRef.name");
            findings.extend(stale(&name, &config_map, &found));
            match found.data.get(&source.key) {
                Some(text) => descriptor::read_of(&found.data, &source.key, text)
                    .map(Some)
                    .map_err(|finding| finding.within(&field)),
                None => Err(Finding::new(
                    join(&field, "configMapKeyRef.key"),
                    Code::DescriptorNotFound,
                    no_key(&config_map, &source.key, &found.data),
                )),
            }
        }
        Ok(None) => Err(Finding::new(
            join(&field, "configMapKeyRef.name"),
            Code::DescriptorNotFound,
            format!("ConfigMap {config_map} not found: create it, or correct the name"),
        )),
        Err((code, why)) => Err(Finding::new(
            join(&field, "configMapKeyRef.name"),
            code,
            format!("ConfigMap {config_map} could not be read: {why}; it is read again by itself"),
        )),
    };
    (descriptor, field)
}

/// Returns the skill's text: the inline text, or a file of the descriptor's ConfigMap. The key is
/// the last part of the path, since keys of ConfigMaps have no '/'.
fn skill(
    objects: &dyn Objects,
    key: &ObjectRef,
    surface: &Surface,
    descriptor: &Descriptor,
    findings: &mut Vec<Finding>,
) -> Option<String> {
    let path = match descriptor.skill.as_ref()? {
        Skill::Text(text) => return Some(text.clone()),
        Skill::Path(path) => path,
    };
    let file = path.rsplit('/').next().unwrap_or(path);
    let Some(source) = &surface.spec.descriptor_from else {
        findings.push(Finding::new(
            "spec.descriptor.skill",
            Code::SkillNotFound,
            format!(
                "names the file {path:?}, and an inline descriptor has no files: put the text under skillText, or use descriptorFrom"
            ),
        ));
        return None;
    };
    let config_map = ObjectRef::new(
        key.namespace.clone(),
        source.config_map_key_ref.name.clone(),
    );
    let material = objects
        .config_map(&config_map)
        .material(Code::DescriptorUnknown);
    let text = match material {
        Ok(Some(found)) => found.data.get(file).cloned(),
        Ok(None) | Err(_) => None,
    };
    if text.is_none() {
        findings.push(Finding::new(
            "spec.descriptorFrom",
            Code::SkillNotFound,
            format!("the skill {path:?} is not in ConfigMap {config_map}: add the key {file:?}"),
        ));
    }
    text.map(|text| {
        let (visible, hidden) = toolcrib_bounds::shown(&text);
        if hidden > 0 {
            findings.push(Finding::new(
                "spec.descriptorFrom",
                Code::HiddenCharacters,
                format!("the skill {path:?} {}", descriptor::hidden::message(hidden)),
            ));
        }
        visible
    })
}

fn find_address(
    objects: &dyn Objects,
    key: &ObjectRef,
    surface: &Surface,
) -> Result<Address, Finding> {
    let spec = &surface.spec;
    match (&spec.service, &spec.url) {
        (Some(target), None) => {
            let service = ObjectRef::new(key.namespace.clone(), target.name.clone());
            let Some(facts) = objects.service(&service) else {
                return Err(Finding::new(
                    "spec.service.name",
                    Code::ServiceNotFound,
                    format!("Service {service} not found: create it, or correct the name"),
                ));
            };
            if facts.external_name {
                return Err(Finding::new(
                    "spec.service.name",
                    Code::ExternalNameRefused,
                    format!(
                        "Service {service} is an ExternalName, whose author chooses the destination: use spec.url"
                    ),
                ));
            }
            if !facts.ports.contains_key(&target.port) {
                return Err(Finding::new(
                    "spec.service.port",
                    Code::ServicePortNotFound,
                    address::no_such_port(&service, &facts, target.port),
                ));
            }
            let address = address::of_target(target, &key.namespace);
            // The Service's name may be that of the API server or the operator.
            address::of_url(&address.base_url, &objects.settings().refused_hosts)
                .map(|_| address)
                .map_err(|message| Finding::new("spec.service.name", Code::AddressRefused, message))
        }
        (None, Some(url)) => address::of_url_in(objects, &key.namespace, url)
            .map_err(|finding| finding.within("spec.url")),
        (None, None) | (Some(_), Some(_)) => Err(Finding::new(
            "spec",
            Code::InvalidValue,
            "set exactly one of service (in this cluster) and url (anywhere)",
        )),
    }
}

/// Returns the operator's authority for the operator's own Service. The authority is rotated, and
/// is in no ConfigMap.
fn own_authority(objects: &dyn Objects, address: &Address) -> Option<CaBundle> {
    let settings = objects.settings();
    let own = settings.claw_api_host.as_deref() == Some(&*address.host);
    let link = settings.link.as_ref().filter(|_| own)?;
    Some(CaBundle {
        pem: link.ca.clone(),
        private: None,
    })
}

/// Reads a CA bundle by reference. Tools are withheld if the mediator cannot use the bundle: a
/// fallback to public roots would trust authorities that the owner did not choose.
pub(crate) fn read_ca(
    objects: &dyn Objects,
    namespace: &str,
    tls: Option<&TlsSpec>,
    findings: &mut Vec<Finding>,
) -> Result<Option<CaBundle>, Finding> {
    let Some(source) = tls.and_then(|tls| tls.ca_from.as_ref()) else {
        return Ok(None);
    };
    let source = &source.config_map_key_ref;
    let config_map = ObjectRef::new(namespace, source.name.clone());
    let field = "spec.tls.caFrom.configMapKeyRef";
    let not_found = |message: String| Err(Finding::new(field, Code::CaNotFound, message));
    let material = objects.config_map(&config_map).material(Code::CaNotFound);
    match material {
        Ok(Some(found)) => {
            findings.extend(stale(field, &config_map, &found));
            match found.data.get(&source.key) {
                Some(pem) => match toolcrib_bounds::ca::certificates(pem) {
                    Ok(_) => Ok(Some(CaBundle {
                        pem: pem.clone(),
                        private: Some(PrivateCa::new(config_map.clone(), &source.key, pem)),
                    })),
                    Err(error) => Err(Finding::new(
                        field,
                        Code::CaInvalid,
                        format!("key {:?} of ConfigMap {config_map} {error}", source.key),
                    )),
                },
                None => not_found(no_key(&config_map, &source.key, &found.data)),
            }
        }
        Ok(None) => not_found(format!(
            "ConfigMap {config_map} not found: create it, or correct the name"
        )),
        Err((code, why)) => Err(Finding::new(
            field,
            code,
            format!("ConfigMap {config_map} could not be read: {why}; it is read again by itself"),
        )),
    }
}

fn no_key(config_map: &ObjectRef, key: &str, data: &BTreeMap<String, String>) -> String {
    let meant = near::other(key, data.keys().map(String::as_str));
    format!("ConfigMap {config_map} has no key {key:?}{meant}: add it, or correct the name")
}

/// Warns that the ConfigMap cannot be read and that its last known content is in use.
fn stale(field: &str, config_map: &ObjectRef, found: &Material) -> Option<Finding> {
    let why = found.stale.as_ref()?;
    Some(Finding::new(
        field,
        Code::LastGoodInUse,
        format!(
            "ConfigMap {config_map} could not be read, and what it held before stays in use: {why}; it is read again by itself"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use toolcrib_manifest::LinkConfig;

    use super::*;
    use crate::{Settings, compile, load};

    const DEN: &str = r#"
{apiVersion: v1, kind: Service, metadata: {name: claw, namespace: den}, spec: {ports: [{port: 443}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: other, namespace: den}, spec: {ports: [{port: 443}]}}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Surface
metadata: {name: own, namespace: den}
spec:
  service: {name: SERVICE, port: 443, scheme: https}
  descriptor: {version: 2, tools: [{name: read, inputSchema: {type: object}, http: {method: GET, path: /}}]}
---
{apiVersion: toolcrib.dev/v1alpha1, kind: Agent, metadata: {name: otter, namespace: den}, spec: {surfaces: [{name: own}]}}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ToolGrant
metadata: {name: g, namespace: den}
spec: {agents: [otter], tools: [{surface: {name: own}, allow: [read]}]}
"#;

    /// The CA of the surface in the agent's files, and the digest of the files.
    fn compiled(service: &str, authority: Option<&str>) -> (Option<String>, String) {
        let settings = Settings {
            link: authority.map(|ca| LinkConfig {
                url: "https://link.den.svc".to_owned(),
                ca: ca.to_owned(),
                audience: "link".to_owned(),
            }),
            claw_api_host: Some("claw.den.svc".to_owned()),
            ..Settings::default()
        };
        let text = DEN.replace("SERVICE", service);
        let inputs = load([("den.yaml".to_owned(), text)], settings).inputs;
        let compiled = compile(&inputs, &ObjectRef::new("den", "otter")).expect("the agent");
        assert_eq!(compiled.tools.len(), 1, "{:?}", compiled.withheld);
        let services = &compiled.files.tools.extension.services;
        let tls = services.get("own").and_then(|own| own.tls.clone());
        (tls.and_then(|tls| tls.ca), compiled.manifest_digest)
    }

    #[test]
    fn the_operators_authority_is_trusted_for_its_service_and_not_part_of_the_digest() {
        let (ca, digest) = compiled("claw", Some("first"));
        assert_eq!(ca.as_deref(), Some("first"));
        assert_eq!(
            compiled("claw", Some("next")),
            (Some("next".to_owned()), digest.clone())
        );
        // Compiled from files, without an authority.
        assert_eq!(compiled("claw", None), (None, digest));
        assert_eq!(compiled("other", Some("first")).0, None);
    }
}

//! The cluster's certificates and the kubeconfig files that hold them.
//!
//! Not here: the webhook's certificates, which the product creates itself. Invariant: the private
//! key of the certificate authority never leaves its folder, which only the owner may enter.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use serde_json::json;

use super::layout::{API_PORT, API_SERVICE, Index, Layout};
use super::process::write_whole;

/// The clients of the API server: file name, user, groups. The built-in RBAC bindings and the
/// node authorizer know these users.
fn clients(node: &str) -> Vec<(&'static str, String, Option<&'static str>)> {
    vec![
        ("admin", "kubernetes-admin".into(), Some("system:masters")),
        (
            "kubelet",
            format!("system:node:{node}"),
            Some("system:nodes"),
        ),
        (
            "controller-manager",
            "system:kube-controller-manager".into(),
            None,
        ),
        ("scheduler", "system:kube-scheduler".into(), None),
        ("kube-proxy", "system:kube-proxy".into(), None),
        ("coredns", "system:coredns".into(), None),
        // The API server's client for the kubelet: logs, exec, port-forward.
        (
            "apiserver-kubelet",
            "kube-apiserver-kubelet-client".into(),
            Some("system:masters"),
        ),
    ]
}

/// Writes keys, certificates and kubeconfig files.
pub fn write(layout: &Layout, index: Index) -> Result<()> {
    let pki = layout.dir.join("pki");
    fs::create_dir_all(&pki).context("create the certificates' folder")?;
    fs::set_permissions(&pki, fs::Permissions::from_mode(0o700))?;

    let authority = authority()?;
    let authority_pem = authority.pem.clone();
    write_whole(&layout.pki("ca.crt"), &authority_pem)?;
    write_whole(
        &layout.pki("ca.key"),
        authority.issuer.key().serialize_pem(),
    )?;

    let node = index.node_address();
    let api_names = [
        "kubernetes".into(),
        "kubernetes.default".into(),
        "kubernetes.default.svc".into(),
        "kubernetes.default.svc.cluster.local".into(),
        "localhost".into(),
        API_SERVICE.to_string(),
        "127.0.0.1".into(),
        node.to_string(),
    ];
    let node_names = [layout.name.to_string(), node.to_string()];
    serving(layout, &authority, "apiserver", &api_names)?;
    serving(layout, &authority, "kubelet-serving", &node_names)?;

    for (file, user, group) in clients(layout.name.as_str()) {
        let (certificate, key) = client(&authority, &user, group)?;
        write_whole(&layout.pki(&format!("{file}.crt")), &certificate)?;
        write_whole(&layout.pki(&format!("{file}.key")), &key)?;
        let config = kubeconfig(layout, index, &authority_pem, &certificate, &key);
        write_whole(&layout.config(&format!("{file}.kubeconfig")), config)?;
    }
    fs::copy(layout.config("admin.kubeconfig"), layout.kubeconfig())?;
    fs::set_permissions(layout.kubeconfig(), fs::Permissions::from_mode(0o600))?;

    // This key signs ServiceAccount tokens; it has no certificate.
    let tokens = KeyPair::generate()?;
    write_whole(&layout.pki("tokens.key"), tokens.serialize_pem())?;
    write_whole(&layout.pki("tokens.pub"), tokens.public_key_pem())
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn authority() -> Result<Authority> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = name("toolcrib local cluster", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let pem = params.self_signed(&key)?.pem();
    Ok(Authority {
        issuer: Issuer::new(params, key),
        pem,
    })
}

fn serving(layout: &Layout, authority: &Authority, file: &str, names: &[String]) -> Result<()> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = name(file, None);
    params.subject_alt_names = names
        .iter()
        .map(|name| alternative(name))
        .collect::<Result<_>>()?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.signed_by(&key, &authority.issuer)?;
    write_whole(&layout.pki(&format!("{file}.crt")), certificate.pem())?;
    write_whole(&layout.pki(&format!("{file}.key")), key.serialize_pem())
}

fn alternative(name: &str) -> Result<SanType> {
    Ok(match name.parse() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(name.try_into()?),
    })
}

fn client(authority: &Authority, user: &str, group: Option<&str>) -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = name(user, group);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &authority.issuer)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn name(common: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name
}

/// Renders a kubeconfig as JSON, which is YAML too; every reader of a kubeconfig takes it.
fn kubeconfig(layout: &Layout, index: Index, ca: &str, certificate: &str, key: &str) -> String {
    let data = |pem: &str| base64::Engine::encode(&base64::prelude::BASE64_STANDARD, pem);
    let name = layout.name.as_str();
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {
            "server": format!("https://{}:{API_PORT}", index.node_address()),
            "certificate-authority-data": data(ca),
        }}],
        "users": [{"name": name, "user": {
            "client-certificate-data": data(certificate),
            "client-key-data": data(key),
        }}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    });
    format!("{config:#}\n")
}

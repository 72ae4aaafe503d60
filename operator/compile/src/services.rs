//! The Services that objects lead to, by their own name or by a url's host.
//!
//! One place for whoever reads Services before a compilation: what wakes an agent, what the
//! operator takes into a snapshot and what the CLI asks a cluster for cannot differ.

use std::collections::BTreeSet;

use toolcrib_crds::{ModelProvider, Surface};

use crate::ObjectRef;
use crate::address::service_of_url;

/// Of a surface in `namespace`: its own, and those that its urls name.
pub fn surface_services(namespace: &str, surface: &Surface) -> BTreeSet<ObjectRef> {
    let spec = &surface.spec;
    let own = spec
        .service
        .as_ref()
        .map(|service| ObjectRef::new(namespace, service.name.clone()));
    let token_url = spec.auth.as_ref().and_then(|auth| auth.token_url.as_ref());
    let named = spec.url.iter().chain(token_url);
    own.into_iter()
        .chain(named.filter_map(|url| service_of_url(url)))
        .collect()
}

/// Of a provider: those that its endpoints' urls and its proxy name.
pub fn provider_services(provider: &ModelProvider) -> BTreeSet<ObjectRef> {
    let spec = &provider.spec;
    spec.endpoints
        .iter()
        .map(|endpoint| &endpoint.url)
        .chain(&spec.proxy)
        .filter_map(|url| service_of_url(url))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: serde::de::DeserializeOwned>(kind: &str, spec: &str) -> T {
        let text = format!(
            "{{apiVersion: toolcrib.dev/v1alpha1, kind: {kind}, metadata: {{name: reed}}, spec: {spec}}}"
        );
        serde_yaml::from_str(&text).expect("an object")
    }

    fn names(services: BTreeSet<ObjectRef>) -> Vec<String> {
        services.iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn of_surface(spec: &str, expected: &[&str]) {
        let services = surface_services("pond", &read("Surface", spec));
        assert_eq!(names(services), expected, "{spec}");
    }

    #[track_caller]
    fn of_provider(spec: &str, expected: &[&str]) {
        let services = provider_services(&read("ModelProvider", spec));
        assert_eq!(names(services), expected, "{spec}");
    }

    #[test]
    fn services_are_named_by_name_and_by_url() {
        of_surface("{service: {name: fish, port: 80}}", &["pond/fish"]);
        of_surface("{url: 'https://fish.reef.svc:8443/v1'}", &["reef/fish"]);
        of_surface("{url: 'https://fish.test'}", &[]);
        of_surface(
            "{service: {name: fish, port: 80}, auth: {tokenUrl: 'https://tokens.reef.svc/token'}}",
            &["pond/fish", "reef/tokens"],
        );
        of_provider(
            "{endpoints: [{dialect: OpenAI, url: 'http://model.pond.svc/v1'}], proxy: 'http://proxy.reef.svc:3128'}",
            &["pond/model", "reef/proxy"],
        );
        of_provider(
            "{endpoints: [{dialect: OpenAI, url: 'https://model.test/v1'}]}",
            &[],
        );
    }
}

//! The Services that objects lead to, by their own name or by a url's host, be it short or a
//! literal address.
//!
//! The controller wakes agents and takes Services into a snapshot by these names. Compile itself
//! asks for the Services that it needs.

use std::collections::BTreeSet;
use std::net::IpAddr;

use kube::Resource;
use toolcrib_crds::{ModelProvider, Surface};

use crate::ObjectRef;
use crate::objects::destination::Domain;
use crate::routes::address::{address_of_url, service_of_url, services_of_url};

/// An object that leads somewhere.
pub trait Leads {
    /// The Service that it names as one.
    fn service(&self) -> Option<ObjectRef>;

    /// Every url of it.
    fn urls(&self) -> Vec<&str>;

    /// The Services that it names in full, whatever the cluster's domain is.
    fn services(&self) -> BTreeSet<ObjectRef> {
        let named = self.urls().into_iter();
        let named = named.filter_map(|url| service_of_url(url, Domain::Any));
        self.service().into_iter().chain(named).collect()
    }

    /// The Services that it names, in full or perhaps by a short name.
    fn possible_services(&self) -> BTreeSet<ObjectRef>
    where
        Self: Resource,
    {
        let namespace = self.meta().namespace.as_deref().unwrap_or_default();
        let named = self.urls().into_iter();
        let named = named.flat_map(|url| services_of_url(namespace, url, Domain::Any));
        self.service().into_iter().chain(named).collect()
    }

    /// The literal addresses of its urls: a Service could have one of them.
    fn addresses(&self) -> BTreeSet<IpAddr> {
        self.urls().into_iter().filter_map(address_of_url).collect()
    }
}

impl Leads for Surface {
    fn service(&self) -> Option<ObjectRef> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let service = self.spec.service.as_ref()?;
        Some(ObjectRef::new(namespace, service.name.clone()))
    }

    fn urls(&self) -> Vec<&str> {
        let auth = self.spec.auth.as_ref();
        let token_url = auth.and_then(|auth| auth.token_url.as_deref());
        self.spec
            .url
            .as_deref()
            .into_iter()
            .chain(token_url)
            .collect()
    }
}

impl Leads for ModelProvider {
    fn service(&self) -> Option<ObjectRef> {
        None
    }

    fn urls(&self) -> Vec<&str> {
        let endpoints = self.spec.endpoints.iter().map(|endpoint| &*endpoint.url);
        endpoints.chain(self.spec.proxy.as_deref()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: serde::de::DeserializeOwned>(kind: &str, spec: &str) -> T {
        let text = format!(
            "{{apiVersion: toolcrib.dev/v1alpha1, kind: {kind}, metadata: {{name: reed, namespace: pond}}, spec: {spec}}}"
        );
        serde_yaml::from_str(&text).expect("an object")
    }

    fn names(services: BTreeSet<ObjectRef>) -> Vec<String> {
        services.iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn of_surface(spec: &str, expected: &[&str]) {
        let services = read::<Surface>("Surface", spec).possible_services();
        assert_eq!(names(services), expected, "{spec}");
    }

    #[track_caller]
    fn of_provider(spec: &str, expected: &[&str]) {
        let services = read::<ModelProvider>("ModelProvider", spec).possible_services();
        assert_eq!(names(services), expected, "{spec}");
    }

    #[test]
    fn services_are_named_by_name_and_by_url() {
        of_surface("{service: {name: fish, port: 80}}", &["pond/fish"]);
        of_surface("{url: 'https://fish.reef.svc:8443/v1'}", &["reef/fish"]);
        of_surface("{url: 'https://api.fish.test'}", &[]);
        of_surface("{url: 'https://fish.reef'}", &["reef/fish"]);
        of_surface("{url: 'https://fish:8443'}", &["pond/fish"]);
        of_surface(
            "{service: {name: fish, port: 80}, auth: {tokenUrl: 'https://tokens.reef.svc/token'}}",
            &["pond/fish", "reef/tokens"],
        );
        of_provider(
            "{endpoints: [{dialect: OpenAI, url: 'http://model.pond.svc/v1'}], proxy: 'http://proxy.reef.svc:3128'}",
            &["pond/model", "reef/proxy"],
        );
        of_provider(
            "{endpoints: [{dialect: OpenAI, url: 'https://api.model.test/v1'}]}",
            &[],
        );
        let provider: ModelProvider = read(
            "ModelProvider",
            "{endpoints: [{dialect: OpenAI, url: 'https://[::ffff:10.96.0.7]/v1'}]}",
        );
        let addresses = BTreeSet::from(["10.96.0.7".parse().expect("an address")]);
        assert_eq!(provider.addresses(), addresses);
    }
}

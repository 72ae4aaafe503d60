//! The Services that objects lead to, by their own name or by the full name in a url.
//!
//! For code that reads objects without compiling them. Compile looks up the Services that it
//! needs itself, short names and literal addresses included.

use std::collections::BTreeSet;

use toolcrib_crds::{ModelProvider, Surface};

use crate::ObjectRef;
use crate::objects::destination::Domain;
use crate::routes::address::service_of_url;

/// An object that names Services or urls.
pub trait Leads {
    /// The Service that the object names by name.
    fn service(&self) -> Option<ObjectRef>;

    /// All urls of the object.
    fn urls(&self) -> Vec<&str>;

    /// The Services that the object names, by name or by full name, in any cluster domain.
    fn services(&self) -> BTreeSet<ObjectRef> {
        let named = self.urls().into_iter();
        let named = named.filter_map(|url| service_of_url(url, Domain::Any));
        self.service().into_iter().chain(named).collect()
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
        let services = read::<Surface>("Surface", spec).services();
        assert_eq!(names(services), expected, "{spec}");
    }

    #[track_caller]
    fn of_provider(spec: &str, expected: &[&str]) {
        let services = read::<ModelProvider>("ModelProvider", spec).services();
        assert_eq!(names(services), expected, "{spec}");
    }

    #[test]
    fn services_are_found_by_name_and_by_url() {
        of_surface("{service: {name: fish, port: 80}}", &["pond/fish"]);
        of_surface("{url: 'https://fish.reef.svc:8443/v1'}", &["reef/fish"]);
        of_surface("{url: 'https://api.fish.test'}", &[]);
        of_surface("{url: 'https://fish.reef'}", &[]);
        of_surface("{url: 'https://fish:8443'}", &[]);
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
    }
}

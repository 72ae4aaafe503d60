//! The Services that objects lead to, by their own name or by a url's host, be it short or a
//! literal address.
//!
//! The controller wakes agents and takes Services into a snapshot by these names. Compile itself
//! asks for the Services that it needs.

use std::collections::BTreeSet;
use std::net::IpAddr;

use kube::Resource;
use toolcrib_crds::{ModelProvider, Surface, TlsSpec};

use crate::address::{Domain, address_of_url, of_target, of_url, service_of_url, services_of_url};
use crate::allowlist::Route;
use crate::surface::read_ca;
use crate::{Allowlist, Inputs, ObjectRef};

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

/// An allowlist of all that these surfaces and providers lead to, through their proxies and
/// with their CAs.
pub fn allowlist(inputs: &Inputs) -> Allowlist {
    let refused = &inputs.settings.refused_hosts;
    let destination = |url: &str| {
        let address = of_url(url, refused).ok()?;
        Some(address.destination())
    };
    let ca = |namespace: &str, tls: Option<&TlsSpec>| {
        let found = read_ca(inputs, namespace, tls, &mut Vec::new());
        found.ok().flatten().and_then(|ca| ca.private)
    };
    let surfaces = inputs.surfaces().map(|(key, surface)| {
        let service = surface.spec.service.iter().filter_map(|target| {
            let address = of_target(target, &key.namespace);
            destination(&address.base_url)
        });
        Route {
            destinations: service
                .chain(surface.urls().into_iter().filter_map(destination))
                .collect(),
            ca: ca(&key.namespace, surface.spec.tls.as_ref()),
            proxy: None,
        }
    });
    let providers = inputs.providers().map(|(key, provider)| Route {
        destinations: provider
            .urls()
            .into_iter()
            .filter_map(destination)
            .collect(),
        ca: ca(&key.namespace, provider.spec.tls.as_ref()),
        proxy: None,
    });
    Allowlist::of_routes(surfaces.chain(providers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Settings, load};

    fn read<T: serde::de::DeserializeOwned>(kind: &str, spec: &str) -> T {
        let text = format!(
            "{{apiVersion: toolcrib.dev/v1alpha1, kind: {kind}, metadata: {{name: reed, namespace: pond}}, spec: {spec}}}"
        );
        serde_yaml::from_str(&text).expect("an object")
    }

    #[test]
    fn an_allowlist_names_all_that_objects_lead_to() {
        let object = |kind: &str, name: &str, spec: &str| {
            format!(
                "---\n{{apiVersion: toolcrib.dev/v1alpha1, kind: {kind}, metadata: {{name: {name}, namespace: pond}}, spec: {spec}}}\n"
            )
        };
        let text = [
            object("Surface", "reed", "{service: {name: fish, port: 80}}"),
            object(
                "Surface",
                "mud",
                "{url: 'https://[fd00::7]:8443', auth: {type: OAuth, tokenUrl: 'https://Tokens.test./t'}}",
            ),
            object(
                "ModelProvider",
                "house",
                "{endpoints: [{dialect: OpenAI, url: 'http://model.test/v1'}], proxy: 'http://proxy.test:3128'}",
            ),
        ];
        let inputs = load(
            [("pond.yaml".to_owned(), text.concat())],
            Settings::default(),
        )
        .inputs;
        let expected = [
            "http://fish.pond.svc",
            "http://model.test",
            "http://proxy.test:3128",
            "https://[fd00::7]:8443",
            "https://tokens.test",
        ];
        let mut hosts: Vec<String> = allowlist(&inputs).hosts().collect();
        hosts.sort();
        assert_eq!(hosts, expected);
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

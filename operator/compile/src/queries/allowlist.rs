//! The allowlist for all objects of a cluster, for Secrets that name no hosts yet.

use toolcrib_crds::TlsSpec;

use crate::routes::address::{of_target, of_url};
use crate::routes::leads::Leads;
use crate::routes::route::Route;
use crate::surface::read_ca;
use crate::{Allowlist, Inputs};

/// Builds an allowlist of all routes that these surfaces and providers need, with their proxies
/// and CAs.
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
            wrong_address: None,
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
        wrong_address: None,
    });
    Allowlist::of_routes(surfaces.chain(providers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Settings, load};

    #[test]
    fn an_allowlist_names_all_routes_of_objects() {
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
}

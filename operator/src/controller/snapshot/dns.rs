//! The DNS settings of compiled files.

use toolcrib_compile::{Key, Kind, ObjectRef, ServiceFacts, names};
use toolcrib_manifest::{ClusterDomain, Dns, NameServer};

use crate::objects::stores::Stores;

/// The name servers of the flags, otherwise the addresses of the cluster's DNS Service. Without
/// either, no name resolves.
pub fn dns(given: &[NameServer], cluster_domain: &ClusterDomain, stores: &Stores) -> Dns {
    let name_servers = match given {
        [] => found(stores),
        given => given.to_vec(),
    };
    Dns {
        cluster_domain: cluster_domain.clone(),
        name_servers,
    }
}

/// The key that [`dns`] depends on.
pub fn key() -> Key {
    let service = ObjectRef::new(names::DNS_NAMESPACE, names::DNS_SERVICE);
    Key::Object(Kind::Service, service)
}

fn found(stores: &Stores) -> Vec<NameServer> {
    let service = stores
        .services
        .get(names::DNS_NAMESPACE, names::DNS_SERVICE);
    let Some(Ok(service)) = service.as_ref().map(|service| &service.object) else {
        return Vec::new();
    };
    let addresses = ServiceFacts::addresses(service);
    addresses.into_iter().map(NameServer::at).collect()
}

#[cfg(test)]
mod tests {
    use kube_runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::objects::store::StoreWriter;
    use crate::objects::stores::SecretScope;

    fn check(services: &[Value], given: &[&str], expected: &[&str]) {
        let stores = Stores::new(&SecretScope::Cluster, usize::MAX);
        let mut writer = StoreWriter::new(stores.services.clone());
        for service in services {
            writer.apply(Event::Apply(
                serde_json::from_value(service.clone()).unwrap(),
            ));
        }
        let given: Vec<NameServer> = given.iter().map(|it| it.parse().unwrap()).collect();
        let dns = dns(&given, &ClusterDomain::default(), &stores);
        let found: Vec<String> = dns.name_servers.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    fn service(namespace: &str, spec: Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service", "spec": spec,
            "metadata": {"name": "kube-dns", "namespace": namespace, "resourceVersion": "1"},
        })
    }

    #[test]
    fn the_flags_come_first_then_kube_dns_in_its_namespace() {
        let forged = service("pond", json!({"clusterIP": "10.96.6.6"}));
        let both = service(
            "kube-system",
            json!({"clusterIP": "fd00::a", "clusterIPs": ["fd00::a", "10.96.0.10"]}),
        );
        check(&[], &[], &[]);
        check(std::slice::from_ref(&forged), &[], &[]);
        check(&[forged, both.clone()], &[], &["10.96.0.10", "fd00::a"]);
        check(&[both], &["169.254.20.10"], &["169.254.20.10"]);
        let headless = service("kube-system", json!({"clusterIP": "None"}));
        check(&[headless], &[], &[]);
    }
}

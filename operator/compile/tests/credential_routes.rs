//! A credential goes only where its Secret's annotations allow.
//!
//! Random surfaces and providers are checked against the rule of the guide ("Where a credential
//! may go"), which is written here a second time: as a table, without parsing URLs.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use toolcrib_compile::{
    Inputs, LastGood, ObjectRef, Presence, SecretKeyRef, Settings, compile, load, materialize,
};
use toolcrib_manifest::SecretText;

/// A URL, and the annotation entries that allow it.
#[derive(Clone, Copy, Debug)]
struct Place {
    url: &'static str,
    /// The entry that allows only this URL.
    exact: &'static str,
    bare: &'static str,
    /// True if the bare host is enough.
    by_bare: bool,
    service: bool,
}

const fn place(
    url: &'static str,
    exact: &'static str,
    bare: &'static str,
    by_bare: bool,
    service: bool,
) -> Place {
    Place {
        url,
        exact,
        bare,
        by_bare,
        service,
    }
}

#[rustfmt::skip]
const PLACES: [Place; 9] = [
    place("https://reed.test/v1", "https://reed.test", "reed.test", true, false),
    place("http://reed.test/v1", "http://reed.test", "reed.test", false, false),
    place("https://reed.test:8443", "https://reed.test:8443", "reed.test", false, false),
    place("https://MUD.test.", "https://mud.test", "mud.test", true, false),
    place("http://192.0.2.7:3128", "http://192.0.2.7:3128", "192.0.2.7", false, false),
    place("http://fish.pond.svc", "http://fish.pond.svc", "fish.pond.svc", true, true),
    place("https://fish.pond.svc.cluster.local:8443", "https://fish.pond.svc:8443", "fish.pond.svc", true, true),
    place("http://fish.pond.svc:9999", "http://fish.pond.svc:9999", "fish.pond.svc", false, true),
    place("https://roach.lake.svc", "https://roach.lake.svc", "roach.lake.svc", true, true),
];

const CAS: [&str; 2] = ["one.crt", "two.crt"];

impl Place {
    fn is_tls(self) -> bool {
        self.exact.starts_with("https:")
    }
}

/// The route that an author configures.
#[derive(Clone, Debug)]
struct Asked {
    /// Endpoints of a provider; a surface's URL and token endpoint.
    places: Vec<Place>,
    /// The proxy of a provider.
    proxy: Option<Place>,
    ca: Option<&'static str>,
}

/// The annotations that an owner sets.
#[derive(Clone, Debug)]
struct Allowed {
    hosts: BTreeSet<&'static str>,
    cas: BTreeSet<&'static str>,
}

fn asked() -> impl Strategy<Value = Asked> {
    (
        subsequence(PLACES.to_vec(), 1..=2),
        prop::option::of(select(PLACES.to_vec())),
        prop::option::of(select(CAS.to_vec())),
    )
        .prop_map(|(places, proxy, ca)| Asked { places, proxy, ca })
}

fn allowed() -> impl Strategy<Value = Allowed> {
    let entries: BTreeSet<&str> = PLACES
        .iter()
        .flat_map(|place| [place.exact, place.bare])
        .chain(["*.test", "test", "reed.test:8443", "https://reed.test/v1"])
        .collect();
    let entries = Vec::from_iter(entries);
    let count = entries.len();
    (
        subsequence(entries, count / 2..=count),
        subsequence(CAS.to_vec(), 0..=2),
    )
        .prop_map(|(hosts, cas)| Allowed {
            hosts: hosts.into_iter().collect(),
            cas: cas.into_iter().collect(),
        })
}

impl Asked {
    /// The receivers that can read the credential. A proxy cannot read TLS, unless it may bring a
    /// CA.
    fn readers(&self) -> Vec<Place> {
        let reads = self.ca.is_some() || self.places.iter().any(|place| !place.is_tls());
        let proxy = self.proxy.filter(|_| reads);
        self.places.iter().copied().chain(proxy).collect()
    }

    fn is_allowed(&self, allowed: &Allowed) -> bool {
        let by_bare = |place: &Place| place.by_bare && allowed.hosts.contains(place.bare);
        let readers = self.readers();
        let named = readers
            .iter()
            .all(|place| by_bare(place) || allowed.hosts.contains(place.exact));
        let vouched = self.ca.is_none_or(|ca| {
            allowed.cas.contains(ca)
                || readers
                    .iter()
                    .all(|place| !place.is_tls() || (place.service && by_bare(place)))
        });
        named && vouched
    }

    /// Everything that a reused value must have been sent with before.
    fn way(&self) -> BTreeSet<&'static str> {
        let readers = self.readers();
        readers
            .iter()
            .map(|place| place.exact)
            .chain(self.ca)
            .collect()
    }

    fn tls(&self) -> String {
        self.ca.map_or(String::new(), |key| {
            format!(", tls: {{caFrom: {{configMapKeyRef: {{name: corp, key: {key}}}}}}}")
        })
    }

    fn provider(&self) -> String {
        let endpoints: Vec<String> = self
            .places
            .iter()
            .map(|place| format!("{{dialect: OpenAI, url: \"{}\"}}", place.url))
            .collect();
        let proxy = self
            .proxy
            .map_or(String::new(), |proxy| format!(", proxy: \"{}\"", proxy.url));
        format!(
            "{{apiVersion: toolcrib.dev/v1alpha1, kind: ModelProvider, metadata: {{name: it, namespace: pond}}, spec: {{endpoints: [{}], apiKeys: [{{secretKeyRef: {{name: creds, key: client_secret}}}}]{proxy}{}}}}}\n---\n",
            endpoints.join(", "),
            self.tls()
        )
    }

    fn surface(&self) -> String {
        let auth = match self.places[..] {
            [_, endpoint, ..] => format!("type: OAuth, tokenUrl: \"{}\"", endpoint.url),
            _ => "type: Bearer".to_owned(),
        };
        let key = if self.places.len() > 1 {
            ""
        } else {
            ", key: client_secret"
        };
        format!(
            "{{apiVersion: toolcrib.dev/v1alpha1, kind: Surface, metadata: {{name: it, namespace: pond}}, spec: {{url: \"{}\", auth: {{{auth}, secretKeyRef: {{name: creds{key}}}}}{}, descriptor: {{version: 2, tools: [{{name: get, inputSchema: {{type: object}}, http: {{method: GET, path: /}}}}]}}}}}}\n---\n",
            self.places[0].url,
            self.tls()
        )
    }
}

fn inputs(object: &str, allowed: &Allowed) -> Inputs {
    let pem = |text: &str| {
        let pem = include_str!("../../../crds/bounds/tests/pond.pem").replace('\n', "\\n");
        format!("\"{text}\\n{pem}\"")
    };
    let hosts = Vec::from_iter(allowed.hosts.clone()).join(", ");
    let cas: Vec<String> = allowed
        .cas
        .iter()
        .map(|key| format!("corp/{key}"))
        .collect();
    let text = format!(
        r#"{object}
{{apiVersion: v1, kind: Service, metadata: {{name: fish, namespace: pond}}, spec: {{ports: [{{port: 80}}, {{name: tls, port: 8443}}]}}}}
---
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: corp, namespace: pond}}, data: {{one.crt: {}, two.crt: {}}}}}
---
{{apiVersion: v1, kind: Secret, metadata: {{name: creds, namespace: pond, labels: {{toolcrib.dev/credential: "true"}}, annotations: {{toolcrib.dev/hosts: "{hosts}", toolcrib.dev/ca: "{}"}}}}, stringData: {{client_id: i, client_secret: s}}}}
---
{{apiVersion: toolcrib.dev/v1alpha1, kind: Agent, metadata: {{name: otter, namespace: pond}}, spec: {{mode: Native, surfaces: [{{name: it}}]}}}}
---
{{apiVersion: toolcrib.dev/v1alpha1, kind: ToolGrant, metadata: {{name: all, namespace: pond}}, spec: {{agents: [otter], tools: [{{surface: {{name: it}}, allow: [get]}}]}}}}
"#,
        pem("one"),
        pem("two"),
        cas.join(" "),
    );
    let loaded = load([("pond.yaml".to_owned(), text)], Settings::default());
    assert!(loaded.errors.is_empty(), "{:?}", loaded.errors);
    loaded.inputs
}

fn secret() -> ObjectRef {
    ObjectRef::new("pond", "creds")
}

/// The keys that the agent's files refer to.
fn sent(inputs: &Inputs) -> BTreeSet<SecretKeyRef> {
    let agent = ObjectRef::new("pond", "otter");
    let compiled = compile(inputs, &agent).expect("the agent");
    compiled.sources.into_keys().collect()
}

proptest! {
    #[test]
    fn a_credential_goes_only_where_its_secret_allows(asked in asked(), allowed in allowed()) {
        let provider = sent(&inputs(&asked.provider(), &allowed));
        prop_assert_eq!(!provider.is_empty(), asked.is_allowed(&allowed), "provider");

        let surface = Asked { proxy: None, ..asked };
        let sent = sent(&inputs(&surface.surface(), &allowed));
        prop_assert_eq!(!sent.is_empty(), surface.is_allowed(&allowed), "surface");
    }

    #[test]
    fn while_its_secret_cannot_be_read_a_value_keeps_its_route(before in asked(), after in asked()) {
        let all = Allowed {
            hosts: PLACES.iter().flat_map(|place| [place.exact, place.bare]).collect(),
            cas: CAS.into(),
        };
        let agent = ObjectRef::new("pond", "otter");
        let value = |_: &SecretKeyRef| Some(SecretText::new("s"));
        let compiled = compile(&inputs(&before.provider(), &all), &agent).expect("the agent");
        let first = materialize(&compiled, &value, &LastGood::default(), &[]);
        prop_assert!(first.missing.is_empty());

        let mut unreadable = inputs(&after.provider(), &all);
        unreadable.set_secret(secret(), Presence::Unknown("away".to_owned()));
        let compiled = compile(&unreadable, &agent).expect("the agent");
        let last_good = LastGood::read(&first.annotations, &first.files);
        let second = materialize(&compiled, &value, &last_good, &[]);
        prop_assert_eq!(second.missing.is_empty(), after.way().is_subset(&before.way()));
    }
}

/// Earlier releases noted bare hosts, for any scheme and port.
#[test]
fn notes_of_an_earlier_release_are_understood() {
    let allowed = Allowed {
        hosts: PLACES
            .iter()
            .flat_map(|place| [place.exact, place.bare])
            .collect(),
        cas: CAS.into(),
    };
    let agent = ObjectRef::new("pond", "otter");
    let value = |_: &SecretKeyRef| Some(SecretText::new("s"));
    for (place, still) in [(PLACES[0], true), (PLACES[1], false), (PLACES[5], true)] {
        let asked = Asked {
            places: vec![place],
            proxy: None,
            ca: None,
        };
        let mut inputs = inputs(&asked.provider(), &allowed);
        let compiled = compile(&inputs, &agent).expect("the agent");
        let mut first = materialize(&compiled, &value, &LastGood::default(), &[]);
        let notes = first
            .annotations
            .get_mut("toolcrib.dev/references")
            .expect("the notes");
        assert!(notes.contains(&format!("[\"{}\"]", place.exact)), "{notes}");
        *notes = notes.replace(place.exact, place.bare);

        inputs.set_secret(secret(), Presence::Unknown("away".to_owned()));
        let compiled = compile(&inputs, &agent).expect("the agent");
        let last_good = LastGood::read(&first.annotations, &first.files);
        let second = materialize(&compiled, &value, &last_good, &[]);
        assert_eq!(second.missing.is_empty(), still, "{}", place.url);
    }
}

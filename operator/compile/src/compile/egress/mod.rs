//! `egress: Declared`: the NetworkPolicy that lets an agent's pods reach what its objects
//! name, and nothing else.
//!
//! Reading order: this file (the destinations, and their policy), [`destination`] (opening one
//! destination), [`extra`] (rules that users add). Not here: writing the policy, and whether a
//! network plugin enforces it.
//!
//! Invariant: a destination that cannot be opened narrowly is reported; an address that cannot be
//! parsed opens nothing.

mod destination;
mod extra;

use crate::compilation::network::{DeclaredEgress, Network};
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::networking::v1::{NetworkPolicyEgressRule, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use toolcrib_crds::{Agent, AuthType, Egress};
use toolcrib_manifest::ProvidersFile;

use self::destination::{Destination, EgressRule};
use crate::compile::credential;
use crate::compile::effective::Effective;
use crate::compile::reach::Reach;
use crate::{Code, Diagnostics, Kind, ObjectRef, Objects, Subject, names};

/// Returns the network of one agent.
pub(crate) fn network(
    objects: &dyn Objects,
    key: &ObjectRef,
    agent: &Agent,
    effective: &Effective,
    reach: &[Reach<'_>],
    providers: &ProvidersFile,
    found: &mut Diagnostics,
) -> Network {
    // An Agent over its budget has no spec, so its network settings are unknown.
    let egress = effective.egress;
    match egress.filter(|_| objects.unusable(Kind::Agent, key).is_none()) {
        Some(Egress::Unrestricted) => Network::Unrestricted,
        Some(Egress::Declared) => {
            let mut declared = declared(objects, key, agent, reach, providers, found);
            declared.policies.clone_from(&effective.egress_policies);
            Network::Declared(declared)
        }
        None => Network::Undecided,
    }
}

/// Builds the policy of one agent. `providers` come from its files.
fn declared(
    objects: &dyn Objects,
    key: &ObjectRef,
    agent: &Agent,
    reach: &[Reach<'_>],
    providers: &ProvidersFile,
    found: &mut Diagnostics,
) -> DeclaredEgress {
    let settings = &objects.settings().network;
    let mut rules: Vec<NetworkPolicyEgressRule> = settings
        .dns
        .iter()
        .filter_map(|rule| extra::rule(rule).ok())
        .collect();
    rules.push(destination::link(settings));

    let mut opened: BTreeMap<String, NetworkPolicyEgressRule> = BTreeMap::new();
    let mut not_narrowed = BTreeSet::new();
    let collector = settings.collector.as_ref();
    let collector = collector.map(|url| Destination::new("the OpenTelemetry receiver", url));
    for place in places(reach, providers).into_iter().chain(collector) {
        let EgressRule { rule, wide } = destination::open(objects, key, &place);
        if let Some(why) = wide {
            found.add(
                &Subject::new(Kind::Agent, key),
                "spec.egress",
                Code::EgressNotNarrowed,
                format!("{}: {why}", place.who),
            );
            not_narrowed.insert(format!("{}: {}", place.who, place.url));
        }
        // By text: two surfaces of one Service need one rule.
        let text = |rule: &NetworkPolicyEgressRule| {
            serde_json::to_string(rule).expect("a rule is plain data")
        };
        opened.extend(rule.map(|rule| (text(&rule), rule)));
    }
    rules.extend(opened.into_values());

    for (index, written) in agent.spec.extra_egress.iter().enumerate() {
        match extra::rule(written) {
            Ok(rule) => rules.push(rule),
            Err(finding) => finding
                .within(&format!("spec.extraEgress[{index}]"))
                .report(&Subject::new(Kind::Agent, key), found),
        }
    }
    DeclaredEgress {
        policy: NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some(BTreeMap::from([(
                    names::AGENT_LABEL.to_owned(),
                    key.name.clone(),
                )])),
                match_expressions: None,
            }),
            policy_types: Some(vec!["Egress".to_owned()]),
            egress: Some(rules),
            ingress: None,
        },
        not_narrowed: not_narrowed.into_iter().collect(),
        policies: Vec::new(),
    }
}

/// Returns the URLs of reachable surfaces, their token endpoints, and providers or their proxies.
fn places(reach: &[Reach<'_>], providers: &ProvidersFile) -> Vec<Destination> {
    let mut places = Vec::new();
    for reach in reach {
        let surface = &reach.resolved.surface;
        let who = format!("surface {}", reach.resolved.subject.key);
        if let Ok(address) = &reach.resolved.address {
            places.push(Destination::new(&who, &address.base_url));
        }
        let auth = surface.spec.auth.as_ref();
        let described = reach.resolved.descriptor();
        let described = described.and_then(|descriptor| descriptor.auth.as_ref());
        // Resolved as for the credential: the descriptor may set the type.
        if let Ok(AuthType::OAuth) = credential::auth_type(auth, described) {
            let token_url = auth.and_then(|auth| auth.token_url.as_ref());
            places.extend(token_url.map(|url| Destination::new(&who, url)));
        }
    }
    for (name, provider) in &providers.providers {
        let who = format!("provider {name}");
        match &provider.proxy {
            Some(proxy) => places.push(Destination::new(&who, proxy)),
            None => places.extend(
                provider
                    .endpoints
                    .iter()
                    .map(|endpoint| Destination::new(&who, &endpoint.base_url)),
            ),
        }
    }
    places
}

//! The ClusterToolPolicies that restrict an agent.
//!
//! Here: which policies match an agent, and what they withhold from it: tools and feeds, and in
//! [`models`] its models. Not here: the tools that its grants give ([`crate::compile::authority`]).
//!
//! Invariants: a policy only takes away. All policies that match hold together, so their order does
//! not matter. What is not known restricts: a namespace without known labels is matched, and a
//! surface of such a namespace is not believed.

pub(crate) mod models;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use toolcrib_bounds::glob;
use toolcrib_crds::{ClusterToolPolicy, ClusterToolPolicySpec, DenyRule};
use toolcrib_manifest::{ClusterDomain, Suspension, Tier};

use crate::diagnostics::finding::Finding;
use crate::objects::List;
use crate::objects::destination::{Domain, service_host, service_of_pod_host, short_name};
use crate::objects::selector::selects;
use crate::routes::address::{Address, reached, services_of_url};
use crate::surface::ResolvedSurface;
use crate::surface::descriptor::DescribedTool;
use crate::{Code, Diagnostic, Diagnostics, Kind, ObjectRef, Objects, Subject, suspend_reason};

/// What to do about a restriction, for the people who grant tools.
const WHOM_TO_ASK: &str =
    "ask an admin of the cluster to change the policy, or leave the tool out of the grant";

/// Returns whether a policy matches an agent. `labels`: those of the agent's namespace, if known.
pub fn policy_matches(
    policy: &ClusterToolPolicySpec,
    agent: &ObjectRef,
    labels: impl FnOnce() -> Option<BTreeMap<String, String>>,
) -> bool {
    let mut named = policy.agents.iter();
    let is_named = policy.agents.is_empty()
        || named.any(|it| it.namespace == agent.namespace && it.name == agent.name);
    is_named
        && policy.namespace_selector.as_ref().is_none_or(|selector| {
            // Not known: it may match.
            selects(selector, &agent.namespace, labels()) != Some(false)
        })
}

/// The policies that match one agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policies {
    matching: List<ClusterToolPolicy>,
    /// The first policy of which no form was ever read, and why. It may say anything about any agent.
    unreadable: Option<(ObjectRef, String)>,
}

impl Policies {
    pub fn of(objects: &dyn Objects, agent: &ObjectRef) -> Self {
        let mut matching = objects.policies();
        matching.retain(|(_, policy)| {
            policy_matches(&policy.spec, agent, || {
                objects.namespace_labels(&agent.namespace)
            })
        });
        Self {
            matching,
            unreadable: objects.unreadable_policies().into_iter().next(),
        }
    }

    pub fn names(&self) -> Vec<String> {
        let keys = self.matching.iter();
        keys.map(|(key, _)| key.name.clone()).collect()
    }

    fn specs(&self) -> impl Iterator<Item = (PolicyName<'_>, &ClusterToolPolicySpec)> {
        let all = self.matching.iter();
        all.map(|(key, policy)| (PolicyName(&key.name), &policy.spec))
    }

    /// Returns the finding for an agent that a policy without a readable form may restrict.
    pub fn blocks(&self, agent: &ObjectRef) -> Option<Diagnostic> {
        let (policy, why) = self.unreadable.as_ref()?;
        let mut found = Diagnostics::default();
        found.add(
            &Subject::new(Kind::Agent, agent),
            "",
            Code::PolicyUnreadable,
            format!(
                "{} cannot be read ({why}), and may restrict this agent: what was compiled before stays in force, and nothing is added; ask an admin of the cluster to correct or delete it",
                PolicyName(&policy.name)
            ),
        );
        found.into_sorted().pop()
    }

    /// Returns the suspension by the first policy that suspends, and reports it.
    pub fn suspension(&self, agent: &ObjectRef, found: &mut Diagnostics) -> Option<Suspension> {
        let (key, policy) = self
            .matching
            .iter()
            .find(|(_, policy)| policy.spec.is_suspending())?;
        let annotations = policy.metadata.annotations.as_ref();
        let written = annotations.and_then(|all| all.get(crate::names::SUSPEND_REASON_ANNOTATION));
        let name = PolicyName(&key.name);
        let reason = match written.map(|written| suspend_reason(written)) {
            Some(reason) if !reason.is_empty() => format!("{name}: {reason}"),
            Some(_) | None => name.to_string(),
        };
        let reason = suspend_reason(&reason).into_owned();
        found.add(
            &Subject::new(Kind::Agent, agent),
            "spec.suspend",
            Code::SuspendedByPolicy,
            format!(
                "{name} suspends agent {agent}, so it serves nothing, whatever its own suspend says: ask an admin of the cluster, who may set spec.suspend of the policy to false"
            ),
        );
        Some(Suspension {
            reason: Some(reason),
        })
    }

    /// Returns the highest tier that any surface may have. `None`: no policy sets one.
    pub fn max_tier(&self) -> Option<Tier> {
        let tiers = self.specs().filter_map(|(_, spec)| spec.max_tier);
        tiers.map(Tier::from).min()
    }

    /// Returns the parts of the policies that concern one surface.
    pub fn over<'p>(
        &'p self,
        objects: &dyn Objects,
        surface: &ResolvedSurface,
    ) -> SurfacePolicies<'p> {
        let key = &surface.subject.key;
        // A surface without an address cannot be called.
        let address = surface.address.as_ref().ok();
        let places = address.map(|address| Places::of(objects, &key.namespace, address));
        let concerns = |rule: &DenyRule| {
            let named = rule.surface.as_ref();
            let is_surface =
                named.is_none_or(|it| it.namespace == key.namespace && it.name == key.name);
            let domain = &objects.settings().cluster_domain;
            is_surface
                && rule.host.as_ref().is_none_or(|host| {
                    let places = places.as_ref();
                    places.is_some_and(|places| places.has(host, domain))
                })
        };
        let denied = self.specs().flat_map(|(policy, spec)| {
            let rules = spec.deny.iter().enumerate();
            rules.map(move |(index, rule)| (policy, index, rule))
        });
        let tiers = self.specs().filter_map(|(policy, spec)| {
            Some(MaxTier {
                policy,
                most: spec.max_tier?.into(),
                is_believed: believes(objects, spec, &key.namespace),
            })
        });
        SurfacePolicies {
            namespace: key.namespace.clone(),
            denied: denied.filter(|(_, _, rule)| concerns(rule)).collect(),
            tiers: tiers.collect(),
        }
    }
}

/// The restrictions of one surface.
pub(crate) struct SurfacePolicies<'p> {
    namespace: String,
    /// The rules that name it or its host, each with its index in the policy.
    denied: Vec<(PolicyName<'p>, usize, &'p DenyRule)>,
    tiers: Vec<MaxTier<'p>>,
}

struct MaxTier<'p> {
    policy: PolicyName<'p>,
    most: Tier,
    /// Whether the policy believes the tiers of the surface's owner.
    is_believed: bool,
}

impl SurfacePolicies<'_> {
    /// Returns why a tool is withheld from the agent. The finding's message follows the tool's name.
    pub fn allow_tool(
        &self,
        name: &str,
        described: &DescribedTool,
        tier: Tier,
    ) -> Result<(), Finding> {
        let names = |rule: &DenyRule| {
            let mut tools = rule.tools.iter();
            rule.tools.is_empty() || tools.any(|it| glob::matches(it, name))
        };
        self.deny(names)?;
        for MaxTier {
            policy,
            most,
            is_believed,
        } in &self.tiers
        {
            let is_raised = !is_believed && !is_read_over_http(described);
            let message = if tier > *most {
                format!(
                    "is {}, above the maxTier {} of {policy}: {WHOM_TO_ASK}",
                    tier.name(),
                    most.name()
                )
            } else if is_raised && Tier::System > *most {
                format!(
                    "counts as System, above the maxTier {} of {policy}, which does not believe tiers of namespace {} (spec.trustTiersOf): {WHOM_TO_ASK}",
                    most.name(),
                    self.namespace
                )
            } else {
                continue;
            };
            return Err(denied(message));
        }
        Ok(())
    }

    /// Returns whether the agent may know and reach nothing of the surface.
    pub fn denies_all(&self) -> bool {
        self.allow_feeds().is_err()
    }

    /// Returns why the feeds of the surface are withheld from the agent. The finding's message
    /// follows the feed's name.
    pub fn allow_feeds(&self) -> Result<(), Finding> {
        self.deny(|rule| rule.tools.is_empty())
    }

    fn deny(&self, names: impl Fn(&DenyRule) -> bool) -> Result<(), Finding> {
        let mut rules = self.denied.iter();
        let Some((policy, index, _)) = rules.find(|(_, _, rule)| names(rule)) else {
            return Ok(());
        };
        let message = format!("is denied by {policy} (spec.deny[{index}]): {WHOM_TO_ASK}");
        Err(denied(message))
    }
}

/// The names and addresses to which a surface's address may lead.
struct Places {
    names: BTreeSet<String>,
    literal: Option<IpAddr>,
    port: u16,
}

impl Places {
    /// Returns the places of an address of an object in `namespace`.
    fn of(objects: &dyn Objects, namespace: &str, address: &Address) -> Self {
        let domain = &objects.settings().cluster_domain;
        let destination = address.destination();
        // Names of one label or two may be short for a Service. A pod of a Service is the Service.
        let services = services_of_url(namespace, &address.base_url, Domain::Is(domain));
        let of_pod = service_of_pod_host(&destination.host, Domain::Is(domain));
        let services: Vec<String> = services.iter().chain(&of_pod).map(service_host).collect();
        let literal = destination.host.parse().ok().map(plain);
        let name = short_name(destination.host, domain);
        Self {
            names: services.into_iter().chain([name]).collect(),
            literal,
            port: destination.port,
        }
    }

    /// Whether the host of a rule, with its port if it has one, is among them.
    fn has(&self, host: &str, domain: &ClusterDomain) -> bool {
        let (host, port) = match host.rsplit_once(':') {
            // The colons of an IPv6 address stand in brackets.
            Some((host, port)) if !port.contains(']') => (host, port.parse::<u16>().ok()),
            Some(_) | None => (host, None),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_host = match host.parse().map(plain) {
            Ok(address) => self.literal == Some(address),
            Err(_) => {
                let host = host.trim_end_matches('.').to_ascii_lowercase();
                // `payments.trading` may be meant as Service payments of namespace trading.
                let as_service = format!("{host}.svc");
                self.names.contains(&short_name(host, domain)) || self.names.contains(&as_service)
            }
        };
        is_host && port.is_none_or(|port| port == self.port)
    }
}

/// `ClusterToolPolicy NAME`.
#[derive(Clone, Copy)]
pub(crate) struct PolicyName<'a>(&'a str);

impl fmt::Display for PolicyName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Kind::ClusterToolPolicy.name(), self.0)
    }
}

fn denied(message: String) -> Finding {
    Finding::new("spec.surfaces", Code::DeniedByPolicy, message)
}

/// Whether the mediator can call the tool with GET or HEAD alone.
fn is_read_over_http(described: &DescribedTool) -> bool {
    use toolcrib_manifest::HttpMethod::{Delete, Get, Head, Patch, Post, Put};
    match described.method() {
        Some(Get | Head) => true,
        Some(Post | Put | Patch | Delete) | None => false,
    }
}

/// Whether a policy believes the tiers of a namespace's surfaces.
fn believes(objects: &dyn Objects, policy: &ClusterToolPolicySpec, namespace: &str) -> bool {
    policy.trust_tiers_of.as_ref().is_some_and(|selector| {
        selects(selector, namespace, objects.namespace_labels(namespace)) == Some(true)
    })
}

/// Returns the address that a literal leads to.
fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(inner) => reached(inner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::address::of_url;

    /// Checks which hosts of a rule match a surface of namespace `pond`.
    #[track_caller]
    fn check(url: &str, yes: &[&str], no: &[&str]) {
        let address = of_url(url, &BTreeSet::new()).expect("a url");
        let places = Places::of(
            &crate::Inputs::offline(crate::Settings::default()),
            "pond",
            &address,
        );
        let domain = ClusterDomain::default();
        for host in yes {
            assert!(places.has(host, &domain), "{host} is a host of {url}");
        }
        for host in no {
            assert!(!places.has(host, &domain), "{host} is no host of {url}");
        }
    }

    #[test]
    fn a_host_matches_in_every_spelling() {
        check(
            "https://Api.Example.com",
            &["api.example.com", "api.example.com:443", "api.example.com."],
            &["example.com", "api.example.com:80", "x.api.example.com"],
        );
        let fish = ["fish.pond.svc", "fish.pond", "fish.pond.svc.cluster.local"];
        check("http://fish.pond.svc.cluster.local", &fish, &["fish"]);
        check("http://fish.pond.svc.:80", &fish, &["fish.lake.svc"]);
        check("http://fish", &fish, &["fish.lake.svc"]);
        check("http://fish-0.fish.pond.svc.cluster.local", &fish, &[]);
        check(
            "http://10.0.0.7",
            &["10.0.0.7", "10.0.0.7:80"],
            &["10.0.0.8"],
        );
        check(
            "http://[::ffff:10.0.0.7]:8080",
            &["10.0.0.7", "[::ffff:a00:7]:8080"],
            &["10.0.0.7:80"],
        );
    }
}

//! The restrictions of one surface by policies: the tools and feeds that enforced policies
//! withhold, those that policies under trial would withhold, and the tools whose calls need an approval.

use std::collections::BTreeSet;
use std::net::IpAddr;

use toolcrib_bounds::glob;
use toolcrib_crds::{
    ApprovalRule, ClusterToolPolicySpec, DenyRule, PolicyRequirement, RequireApproval,
};
use toolcrib_manifest::{ClusterDomain, Tier};

use super::{Policies, PolicyName};
use crate::diagnostics::finding::Finding;
use crate::objects::destination::{Domain, service_host, service_of_pod_host, short_name};
use crate::objects::selector::selects;
use crate::routes::address::{Address, reached, services_of_url};
use crate::surface::ResolvedSurface;
use crate::surface::descriptor::DescribedTool;
use crate::{Code, Objects};

/// The advice to people who grant tools, at the end of a message.
const WHOM_TO_ASK: &str =
    "ask an admin of the cluster to change the policy, or leave the tool out of the grant";

impl Policies {
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
        let restriction = |(policy, spec): (PolicyName<'p>, &'p ClusterToolPolicySpec)| {
            let denied = spec.deny.iter().enumerate();
            let asked = spec.require_approval.as_ref();
            let restriction = Restriction {
                policy,
                denied: denied.filter(|(_, rule)| concerns(rule)).collect(),
                max_tier: spec.max_tier.map(Tier::from),
                is_believed: believes(objects, spec, &key.namespace),
                approval: asked.map(|asked| Approval {
                    asked,
                    tools: asked.tools.iter().filter(|rule| concerns(rule)).collect(),
                }),
            };
            (spec.is_tried_out(), restriction)
        };
        let (tried_out, enforced): (Vec<_>, Vec<_>) = self
            .specs()
            .map(restriction)
            .partition(|(is_tried_out, _)| *is_tried_out);
        let restrictions =
            |of: Vec<(bool, Restriction<'p>)>| of.into_iter().map(|it| it.1).collect();
        SurfacePolicies {
            namespace: key.namespace.clone(),
            enforced: restrictions(enforced),
            tried_out: restrictions(tried_out),
        }
    }
}

/// The restrictions of one surface.
pub(crate) struct SurfacePolicies<'p> {
    namespace: String,
    enforced: Vec<Restriction<'p>>,
    /// They withhold nothing.
    tried_out: Vec<Restriction<'p>>,
}

/// The restrictions of one surface by one policy.
struct Restriction<'p> {
    policy: PolicyName<'p>,
    /// The rules that name the surface or its host, each with its index in the policy.
    denied: Vec<(usize, &'p DenyRule)>,
    max_tier: Option<Tier>,
    /// Whether the policy trusts the tiers that the surface's owner declares.
    is_believed: bool,
    approval: Option<Approval<'p>>,
}

/// The calls of one surface for which a policy asks for an approval.
struct Approval<'p> {
    asked: &'p RequireApproval,
    /// The rules that name the surface or its host.
    tools: Vec<&'p DenyRule>,
}

/// A tool or feed that a policy would withhold if it were not tried out.
pub(crate) struct TrialFinding<'p> {
    pub policy: &'p str,
    /// The finding's message follows the name of the tool or feed.
    pub finding: Finding,
}

impl<'p> SurfacePolicies<'p> {
    /// Returns why a tool is withheld from the agent. The finding's message follows the tool's name.
    pub fn allow_tool(
        &self,
        name: &str,
        described: &DescribedTool,
        tier: Tier,
    ) -> Result<(), Finding> {
        let namespace = &self.namespace;
        first(&self.enforced, |it| {
            it.of_tool(namespace, name, described, tier)
        })
    }

    /// Returns the policies that would withhold the tool.
    pub fn would_deny_tool(
        &self,
        name: &str,
        described: &DescribedTool,
        tier: Tier,
    ) -> Vec<TrialFinding<'p>> {
        let namespace = &self.namespace;
        all(&self.tried_out, |it| {
            it.of_tool(namespace, name, described, tier)
        })
    }

    /// Returns the policies that ask for an approval of each call of the tool, in name order.
    pub fn approval_of(
        &self,
        name: &str,
        described: &DescribedTool,
        tier: Tier,
    ) -> Vec<PolicyRequirement> {
        let asking = self.enforced.iter().filter_map(|restriction| {
            let approval = restriction.approval.as_ref()?;
            let counted = restriction.counted_tier(described, tier);
            let mut tiers = approval.asked.tiers.iter();
            let asks = tiers.any(|asked| Tier::from(*asked) == counted)
                || approval.tools.iter().any(|rule| names_tool(rule, name));
            asks.then(|| PolicyRequirement {
                policy: restriction.policy.0.to_owned(),
                approval: ApprovalRule {
                    approvers: approval.asked.approvers.clone(),
                    minimum: approval.asked.minimum,
                },
            })
        });
        let mut asking: Vec<PolicyRequirement> = asking.collect();
        asking.sort();
        asking
    }

    /// True if a policy denies the whole surface: the agent must neither know nor reach it.
    pub fn denies_all(&self) -> bool {
        self.allow_feeds().is_err()
    }

    /// Returns why the feeds of the surface are withheld from the agent. The finding's message
    /// follows the feed's name.
    pub fn allow_feeds(&self) -> Result<(), Finding> {
        first(&self.enforced, |it| it.of_feeds())
    }

    /// Returns the policies that would withhold the feeds of the surface.
    pub fn would_deny_feeds(&self) -> Vec<TrialFinding<'p>> {
        all(&self.tried_out, |it| it.of_feeds())
    }
}

fn first(
    restrictions: &[Restriction<'_>],
    why: impl Fn(&Restriction<'_>) -> Option<String>,
) -> Result<(), Finding> {
    let Some(why) = restrictions.iter().find_map(why) else {
        return Ok(());
    };
    let message = format!("{why}: {WHOM_TO_ASK}");
    Err(Finding::new("spec.surfaces", Code::DeniedByPolicy, message))
}

fn all<'p>(
    restrictions: &[Restriction<'p>],
    why: impl Fn(&Restriction<'p>) -> Option<String>,
) -> Vec<TrialFinding<'p>> {
    let tried_out = |restriction: &Restriction<'p>| {
        let policy = restriction.policy;
        let message = format!(
            "is given while {policy} is tried out (enforcement: Audit); with Enforce it is withheld, since it {}: leave it out of the grant, or tell an admin of the cluster that the agent needs it",
            why(restriction)?
        );
        Some(TrialFinding {
            policy: policy.0,
            finding: Finding::new("spec.surfaces", Code::PolicyWouldDeny, message),
        })
    };
    restrictions.iter().filter_map(tried_out).collect()
}

impl Restriction<'_> {
    /// Returns why the policy denies a tool of a surface in `namespace`, as words after "it".
    fn of_tool(
        &self,
        namespace: &str,
        name: &str,
        described: &DescribedTool,
        tier: Tier,
    ) -> Option<String> {
        let policy = self.policy;
        let denied = self.denied(|rule| names_tool(rule, name));
        denied.or_else(|| {
            let most = self.max_tier.as_ref()?;
            if tier > *most {
                Some(format!(
                    "is {}, above the maxTier {} of {policy}",
                    tier.name(),
                    most.name()
                ))
            } else if self.counted_tier(described, tier) > *most {
                Some(format!(
                    "counts as System, above the maxTier {} of {policy}, which does not believe tiers of namespace {namespace} (spec.trustTiersOf)",
                    most.name(),
                ))
            } else {
                None
            }
        })
    }

    /// Returns the tier that the tool has for this policy: at least System if its owner's word is not
    /// believed.
    fn counted_tier(&self, described: &DescribedTool, tier: Tier) -> Tier {
        match self.is_believed || is_read_over_http(described) {
            true => tier,
            false => tier.max(Tier::System),
        }
    }

    fn of_feeds(&self) -> Option<String> {
        self.denied(|rule| rule.tools.is_empty())
    }

    fn denied(&self, names: impl Fn(&DenyRule) -> bool) -> Option<String> {
        let (index, _) = self.denied.iter().find(|(_, rule)| names(rule))?;
        Some(format!("is denied by {} (spec.deny[{index}])", self.policy))
    }
}

fn names_tool(rule: &DenyRule, name: &str) -> bool {
    let mut tools = rule.tools.iter();
    rule.tools.is_empty() || tools.any(|it| glob::matches(it, name))
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

    /// Whether these places include the host of a rule, with its port if it has one.
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

/// Whether the mediator can call the tool with GET or HEAD alone.
fn is_read_over_http(described: &DescribedTool) -> bool {
    use toolcrib_manifest::HttpMethod::{Delete, Get, Head, Patch, Post, Put};
    match described.method() {
        Some(Get | Head) => true,
        Some(Post | Put | Patch | Delete) | None => false,
    }
}

/// Whether a policy trusts the tiers that a namespace's surfaces declare.
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

//! Checks the egress rules that users write: the API server refuses a NetworkPolicy as a whole,
//! and a missing policy restricts nothing.
//!
//! Invariant: the API server accepts every rule returned here.

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicyEgressRule, NetworkPolicyPeer, NetworkPolicyPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use toolcrib_crds::{EgressPeer, EgressPort, EgressProtocol, EgressRule, IpBlock};

use crate::diagnostics::finding::Finding;
use crate::objects::range::Range;
use crate::{Code, names};

/// Converts a rule to the Kubernetes type. The finding's field is relative to the rule.
pub(super) fn rule(written: &EgressRule) -> Result<NetworkPolicyEgressRule, Finding> {
    let to = written
        .to
        .iter()
        .enumerate()
        .map(|(index, written)| {
            peer(written).map_err(|finding| finding.within(&format!("to[{index}]")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let ports = written
        .ports
        .iter()
        .enumerate()
        .map(|(index, written)| {
            port(written).map_err(|finding| finding.within(&format!("ports[{index}]")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(NetworkPolicyEgressRule {
        to: (!to.is_empty()).then_some(to),
        ports: (!ports.is_empty()).then_some(ports),
    })
}

fn peer(written: &EgressPeer) -> Result<NetworkPolicyPeer, Finding> {
    let by_labels = written.namespace_selector.is_some() || written.pod_selector.is_some();
    if written.ip_block.is_some() == by_labels {
        return Err(invalid(
            "",
            "set ipBlock, or namespaceSelector and podSelector, but not both",
        ));
    }
    for (field, selector) in [
        ("namespaceSelector", &written.namespace_selector),
        ("podSelector", &written.pod_selector),
    ] {
        if let Some(selector) = selector {
            check_selector(selector).map_err(|message| invalid(field, message))?;
        }
    }
    Ok(NetworkPolicyPeer {
        ip_block: written.ip_block.as_ref().map(block).transpose()?,
        namespace_selector: written.namespace_selector.clone(),
        pod_selector: written.pod_selector.clone(),
    })
}

fn block(written: &IpBlock) -> Result<IPBlock, Finding> {
    let outer = Range::parse(&written.cidr).map_err(|message| invalid("ipBlock.cidr", message))?;
    for (index, except) in written.except.iter().enumerate() {
        let field = format!("ipBlock.except[{index}]");
        let inner = Range::parse(except).map_err(|message| invalid(&field, message))?;
        if !inner.is_strictly_in(&outer) {
            let message = format!(
                "{except} is not a part of {}: remove it, or correct one of the two",
                written.cidr
            );
            return Err(invalid(&field, message));
        }
    }
    Ok(IPBlock {
        cidr: written.cidr.clone(),
        except: (!written.except.is_empty()).then(|| written.except.clone()),
    })
}

fn port(written: &EgressPort) -> Result<NetworkPolicyPort, Finding> {
    if written.port == 0 {
        return Err(invalid("port", "must be between 1 and 65535"));
    }
    if written.end_port.is_some_and(|end| end < written.port) {
        return Err(invalid(
            "endPort",
            "must not be below port: write a larger number, or remove it",
        ));
    }
    Ok(NetworkPolicyPort {
        port: Some(IntOrString::Int(written.port.into())),
        end_port: written.end_port.map(Into::into),
        protocol: Some(
            written
                .protocol
                .unwrap_or(EgressProtocol::Tcp)
                .name()
                .to_owned(),
        ),
    })
}

fn invalid(field: &str, message: impl Into<String>) -> Finding {
    let message = format!("{}; the rule opens nothing", message.into());
    Finding::new(field, Code::InvalidValue, message)
}

fn check_selector(selector: &LabelSelector) -> Result<(), String> {
    for (key, value) in selector.match_labels.iter().flatten() {
        label_key(key)?;
        label_value(value)?;
    }
    for term in selector.match_expressions.iter().flatten() {
        label_key(&term.key)?;
        let values = term.values.as_deref().unwrap_or_default();
        for value in values {
            label_value(value)?;
        }
        let fits = match term.operator.as_str() {
            "In" | "NotIn" => !values.is_empty(),
            "Exists" | "DoesNotExist" => values.is_empty(),
            _ => false,
        };
        if !fits {
            return Err(format!(
                "{} {}: write In or NotIn with values, Exists or DoesNotExist without",
                term.key, term.operator
            ));
        }
    }
    Ok(())
}

fn label_key(key: &str) -> Result<(), String> {
    let (prefix, name) = key
        .split_once('/')
        .map_or((None, key), |(p, n)| (Some(p), n));
    let prefix_fits = prefix.is_none_or(|prefix| {
        (1..=253).contains(&prefix.len()) && prefix.split('.').all(names::is_dns_label)
    });
    if prefix_fits && !name.is_empty() && is_label_text(name) {
        Ok(())
    } else {
        Err(format!("{key:?} is not a valid label name"))
    }
}

fn label_value(value: &str) -> Result<(), String> {
    if value.is_empty() || is_label_text(value) {
        Ok(())
    } else {
        Err(format!("{value:?} is not a valid label value"))
    }
}

fn is_label_text(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63
        && text.starts_with(edge)
        && text.ends_with(edge)
        && text.chars().all(|c| edge(c) || "-_.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rule_text: serde_json::Value, expected: Result<(), &str>) {
        let written: EgressRule = serde_json::from_value(rule_text).expect("a rule");
        let result = rule(&written).map(drop).map_err(|finding| finding.field);
        assert_eq!(result, expected.map_err(str::to_owned), "{written:?}");
    }

    #[test]
    fn rules_that_the_api_server_would_refuse_are_refused() {
        use serde_json::json;
        let block = |cidr: &str, except: &[&str]| json!({"to": [{"ipBlock": {"cidr": cidr, "except": except}}]});
        check(json!({}), Ok(()));
        check(block("10.0.0.0/8", &["10.1.0.0/16"]), Ok(()));
        check(block("fd00::/8", &["fd00:1::/32"]), Ok(()));
        for cidr in [
            "10.0.0.0",
            "10.0.0.0/33",
            "fd00::/129",
            "pond/8",
            "10.0.0.0/+8",
            "10.0.0.0/",
        ] {
            check(block(cidr, &[]), Err("to[0].ipBlock.cidr"));
        }
        for except in ["10.0.0.0/8", "11.0.0.0/16", "fd00::/16", "0.0.0.0/0"] {
            check(
                block("10.0.0.0/8", &[except]),
                Err("to[0].ipBlock.except[0]"),
            );
        }
        check(block("0.0.0.0/0", &["10.0.0.0/8"]), Ok(()));
        check(json!({"to": [{}]}), Err("to[0]"));
        check(
            json!({"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}),
            Err("to[0]"),
        );
        check(
            json!({"to": [{"podSelector": {"matchLabels": {"a.b/c": "d"}}}]}),
            Ok(()),
        );
        check(
            json!({"to": [{"podSelector": {"matchLabels": {"-": "d"}}}]}),
            Err("to[0].podSelector"),
        );
        check(
            json!({"to": [{"podSelector": {"matchLabels": {"a": "d d"}}}]}),
            Err("to[0].podSelector"),
        );
        let term = |operator: &str, values: &[&str]| json!({"to": [{"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": operator, "values": values}]}}]});
        check(term("In", &["otters"]), Ok(()));
        check(term("In", &[]), Err("to[0].namespaceSelector"));
        check(term("Exists", &["otters"]), Err("to[0].namespaceSelector"));
        check(
            term("Resembles", &["otters"]),
            Err("to[0].namespaceSelector"),
        );
        check(json!({"ports": [{"port": 5, "endPort": 9}]}), Ok(()));
        check(
            json!({"ports": [{"port": 5, "endPort": 4}]}),
            Err("ports[0].endPort"),
        );
        check(json!({"ports": [{"port": 0}]}), Err("ports[0].port"));
    }

    #[test]
    fn rules_of_the_chart_are_accepted() {
        let settings = crate::NetworkSettings::default();
        for dns in &settings.dns {
            assert!(rule(dns).is_ok());
        }
        for text in &settings.cluster_ranges {
            assert!(Range::parse(text).is_ok(), "{text}");
        }
    }
}

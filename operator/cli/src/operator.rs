//! The operator's settings on which compile depends: from flags, else from its Deployment, else
//! the chart's defaults.

use std::collections::BTreeMap;

use clap::Parser;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;
use toolcrib_compile::{AgentSelectors, NetworkSettings, Settings, refused_hosts};

use crate::args::OperatorArgs;

/// Flags of the controller that name its Services, with the chart's names for them.
const SERVICES: [(&str, &str); 2] = [
    ("--link-service", "toolcrib-link"),
    ("--webhook-service", "toolcrib-webhook"),
];

/// Selector of the controller's objects: the chart's labels.
pub const CONTROLLER: &str =
    "app.kubernetes.io/name=toolcrib,app.kubernetes.io/component=controller";

pub fn settings(given: &OperatorArgs) -> Settings {
    with_services(given, SERVICES.map(|(_, service)| service.to_owned()))
}

fn with_services(given: &OperatorArgs, services: [String; 2]) -> Settings {
    let chart = NetworkSettings::default();
    let namespace = match given.operator_namespace.as_str() {
        "" => chart.operator_namespace,
        named => named.to_owned(),
    };
    let services = [services[0].as_str(), services[1].as_str()];
    let cluster_domain = given.cluster_domain.clone().unwrap_or_default();
    Settings {
        link: None,
        dns: None,
        refused_hosts: refused_hosts(&namespace, services, &cluster_domain, &given.refused_hosts),
        cluster_domain,
        network: NetworkSettings {
            operator_namespace: namespace,
            link_port: chart.link_port,
            dns: given
                .dns_egress
                .as_ref()
                .map_or(chart.dns, |rules| rules.0.clone()),
            cluster_ranges: match given.cluster_ranges.as_slice() {
                [] => chart.cluster_ranges,
                named => named.to_vec(),
            },
            // The operator's Deployment says it.
            collector: None,
        },
        claw_api_host: None,
        // For files, the chart's admission policy is assumed. A cluster's grants say it in status.
        agent_selectors: AgentSelectors::Guarded,
    }
}

/// Does the same as [`settings`], with the operator's Deployment for settings without a flag.
/// `Err`: the Deployment's arguments cannot be parsed.
pub fn settings_of(given: &OperatorArgs, controller: &Deployment) -> Result<Settings, String> {
    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct ControllerFlags {
        #[command(flatten)]
        operator: OperatorArgs,
    }
    let said = flags(controller);
    let known = [
        "--refused-hosts",
        "--dns-egress",
        "--cluster-domain",
        "--cluster-ranges",
    ];
    let words = known
        .iter()
        .filter_map(|flag| Some(format!("{flag}={}", said.get(*flag)?)));
    let said_of_services = SERVICES.map(|(flag, chart)| {
        let said = said.get(flag).map(String::as_str);
        said.unwrap_or(chart).to_owned()
    });
    let said_of_collector = said.get("--collector").cloned();
    let ControllerFlags { operator: said } =
        ControllerFlags::try_parse_from(words).map_err(|error| error.kind().to_string())?;
    let mut joined = given.clone();
    if joined.refused_hosts.is_empty() {
        joined.refused_hosts = said.refused_hosts;
    }
    if joined.cluster_ranges.is_empty() {
        joined.cluster_ranges = said.cluster_ranges;
    }
    joined.cluster_domain = joined.cluster_domain.or(said.cluster_domain);
    joined.dns_egress = joined.dns_egress.or(said.dns_egress);
    let mut settings = with_services(&joined, said_of_services);
    settings.network.collector = said_of_collector;
    Ok(settings)
}

/// Reads the arguments `--flag=value` of its containers, as the chart writes them.
pub fn flags(controller: &Deployment) -> BTreeMap<String, String> {
    let containers: &[Container] = controller
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref())
        .map_or(&[], |pod| &pod.containers);
    containers
        .iter()
        .flat_map(|container| container.args.iter().flatten())
        .filter_map(|argument| argument.split_once('='))
        .map(|(flag, value)| (flag.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn controller(arguments: &[&str]) -> Deployment {
        serde_json::from_value(json!({
            "spec": {
                "selector": {},
                "template": {"spec": {"containers": [{"name": "controller", "args": arguments}]}},
            },
        }))
        .unwrap()
    }

    fn given(arguments: &[&str]) -> OperatorArgs {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            operator: OperatorArgs,
        }
        Line::parse_from([&["toolcrib"], arguments].concat()).operator
    }

    #[test]
    fn without_flags_the_chart_s_defaults_apply() {
        assert_eq!(settings(&given(&[])), Settings::default());
        let plain = controller(&["controller", "--log=info"]);
        assert_eq!(settings_of(&given(&[]), &plain), Ok(Settings::default()));
    }

    #[test]
    fn a_flag_overrides_the_deployment() {
        let said = controller(&[
            "controller",
            "--refused-hosts=vault.test,db.test",
            "--cluster-ranges=10.0.0.0/8",
            "--cluster-domain=reef.example",
            "--link-service=den-link",
            "--collector=http://collector.observability.svc:4318",
            r#"--dns-egress=[{"ports":[{"port":5353,"protocol":"UDP"}]}]"#,
        ]);
        let found = settings_of(&given(&["--refused-hosts", "Vault.Test"]), &said).unwrap();
        assert!(found.refused_hosts.contains("vault.test"));
        assert!(!found.refused_hosts.contains("db.test"));
        assert!(found.refused_hosts.contains("den-link.toolcrib-system.svc"));
        assert!(
            found
                .refused_hosts
                .contains("den-link.toolcrib-system.svc.reef.example")
        );
        assert_eq!(found.network.cluster_ranges, ["10.0.0.0/8"]);
        assert_eq!(found.network.dns.len(), 1);
        let collector = Some("http://collector.observability.svc:4318".to_owned());
        assert_eq!(found.network.collector, collector);
        let found = settings_of(&given(&[]), &said).unwrap();
        assert!(found.refused_hosts.contains("db.test"));
    }

    #[test]
    fn unreadable_arguments_are_an_error() {
        let broken = controller(&["--dns-egress={"]);
        assert!(settings_of(&given(&[]), &broken).is_err());
    }
}

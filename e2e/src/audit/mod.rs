//! Compares the rights that an account used, according to the API server's audit log, with the
//! rights that its RBAC objects give. Pure: text and objects in, findings out.
//!
//! A right is one verb on one resource by one rule of one role. A ClusterRole that is bound in
//! many namespaces counts once: it is used if it is used in any of them.
//!
//! Invariant: an event that cannot be decoded is an error. A check that skipped events would find
//! nothing used and nothing wrong.

pub mod rare;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use serde_json::Value;

/// Returns `system:serviceaccount:NAMESPACE:NAME`.
pub fn user(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// One request of an account, allowed or refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    pub user: String,
    pub verb: String,
    pub group: String,
    /// The resource with its subresource: `pods/status`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub outcome: Outcome,
    /// Status code of the response.
    pub status: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Allowed,
    /// The authorizer refused the request.
    Forbidden,
}

impl Use {
    /// True if the request can have changed an object. Creating an Event that exists already
    /// changes none.
    pub fn writes(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch") && self.status < 400
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        let place = [&self.namespace, &self.name].map(String::as_str);
        match place {
            ["", ""] => Ok(()),
            _ => write!(f, " {}", place.join("/")),
        }
    }
}

/// Reads the requests for objects from the log, in its order.
pub fn uses(log: &str) -> Result<Vec<Use>, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Event {
        verb: String,
        user: User,
        object_ref: Option<Reference>,
        response_status: Option<Status>,
        #[serde(default)]
        annotations: BTreeMap<String, String>,
    }
    #[derive(Deserialize)]
    struct User {
        username: String,
    }
    #[derive(Deserialize)]
    struct Status {
        #[serde(default)]
        code: u16,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    #[derive(Default)]
    struct Reference {
        api_group: String,
        resource: String,
        subresource: String,
        namespace: String,
        name: String,
    }
    let mut uses = Vec::new();
    for line in log.lines().filter(|line| !line.is_empty()) {
        let event: Event = serde_json::from_str(line)?;
        // A request without an object is for a path like /version.
        let Some(object) = event.object_ref else {
            continue;
        };
        let decision = event.annotations.get("authorization.k8s.io/decision");
        uses.push(Use {
            user: event.user.username,
            verb: event.verb,
            group: object.api_group,
            resource: match object.subresource.as_str() {
                "" => object.resource,
                subresource => format!("{}/{subresource}", object.resource),
            },
            namespace: object.namespace,
            name: object.name,
            status: event.response_status.map_or(0, |status| status.code),
            outcome: match decision.map(String::as_str) {
                Some("forbid") => Outcome::Forbidden,
                Some(_) | None => Outcome::Allowed,
            },
        });
    }
    Ok(uses)
}

/// A right of an account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccountRight {
    pub user: String,
    pub role: String,
    pub verb: String,
    pub group: String,
    pub resource: String,
    /// The one object that the right is for; `None`: all.
    pub name: Option<String>,
    /// The namespaces in which the right holds; `None`: everywhere.
    pub namespaces: Option<BTreeSet<String>>,
}

impl AccountRight {
    fn covers(&self, used: &Use) -> bool {
        // A `create` right on one name is for server-side apply: the API server authorizes the
        // create within the patch, and logs the patch alone.
        let is_apply = self.verb == "create" && self.name.is_some() && used.verb == "patch";
        self.user == used.user
            && (self.verb == used.verb || is_apply)
            && self.group == used.group
            && self.resource == used.resource
            && self.name.as_ref().is_none_or(|name| *name == used.name)
            && self
                .namespaces
                .as_ref()
                .is_none_or(|namespaces| namespaces.contains(&used.namespace))
    }
}

impl fmt::Display for AccountRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.rsplit(':').next().unwrap_or_default();
        write!(f, "{user}, {}: {} {}", self.role, self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        match &self.name {
            Some(name) => write!(f, " {name}"),
            None => Ok(()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    #[error("{0} cannot be decoded as an RBAC object: {1}")]
    Shape(String, serde_json::Error),
    #[error("{binding} refers to {role}, which is not among the objects")]
    NoRole { binding: String, role: String },
    /// A wildcard right: the log cannot show which part of it is used.
    #[error("{0} gives `*`")]
    Wildcard(String),
}

/// Returns the rights that these roles and bindings give to accounts. Objects of other kinds are
/// skipped.
pub fn rights(objects: &[Value]) -> Result<BTreeSet<AccountRight>, RightsError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Rule {
        #[serde(default)]
        api_groups: Vec<String>,
        #[serde(default)]
        resources: Vec<String>,
        #[serde(default)]
        resource_names: Vec<String>,
        verbs: Vec<String>,
    }
    #[derive(Deserialize)]
    struct Subject {
        kind: String,
        name: String,
        #[serde(default)]
        namespace: String,
    }
    fn read<T: serde::de::DeserializeOwned>(object: &Value, field: &str) -> Result<T, RightsError> {
        serde_json::from_value(object[field].clone())
            .map_err(|error| RightsError::Shape(title(object), error))
    }
    fn title(object: &Value) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        match text(&object["metadata"]["namespace"]).as_str() {
            "" => format!("{kind} {name}"),
            namespace => format!("{kind} {namespace}/{name}"),
        }
    }

    let mut rights: BTreeMap<AccountRight, Option<BTreeSet<String>>> = BTreeMap::new();
    for binding in objects {
        let cluster = match binding["kind"].as_str() {
            Some("ClusterRoleBinding") => true,
            Some("RoleBinding") => false,
            Some(_) | None => continue,
        };
        let namespace = binding["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default();
        let kind = binding["roleRef"]["kind"].as_str().unwrap_or_default();
        let role = match kind {
            "Role" => format!(
                "Role {namespace}/{}",
                binding["roleRef"]["name"].as_str().unwrap_or_default()
            ),
            kind => format!(
                "{kind} {}",
                binding["roleRef"]["name"].as_str().unwrap_or_default()
            ),
        };
        let found = objects.iter().find(|object| title(object) == role);
        let found = found.ok_or_else(|| RightsError::NoRole {
            binding: title(binding),
            role: role.clone(),
        })?;
        let rules: Vec<Rule> = read(found, "rules")?;
        let subjects: Vec<Subject> = read(binding, "subjects")?;
        for subject in subjects
            .iter()
            .filter(|subject| subject.kind == "ServiceAccount")
        {
            for rule in &rules {
                let names: Vec<Option<String>> = match rule.resource_names.as_slice() {
                    [] => vec![None],
                    names => names.iter().cloned().map(Some).collect(),
                };
                for verb in &rule.verbs {
                    for group in &rule.api_groups {
                        for resource in &rule.resources {
                            if [verb, group, resource].iter().any(|it| *it == "*") {
                                return Err(RightsError::Wildcard(role));
                            }
                            for name in &names {
                                let right = AccountRight {
                                    user: user(&subject.namespace, &subject.name),
                                    role: role.clone(),
                                    verb: verb.clone(),
                                    group: group.clone(),
                                    resource: resource.clone(),
                                    name: name.clone(),
                                    namespaces: None,
                                };
                                let here =
                                    (!cluster).then(|| BTreeSet::from([namespace.to_owned()]));
                                rights
                                    .entry(right)
                                    .and_modify(|where_| match (&here, where_) {
                                        (Some(here), Some(there)) => there.extend(here.clone()),
                                        (_, there) => *there = None,
                                    })
                                    .or_insert(here);
                            }
                        }
                    }
                }
            }
        }
    }
    Ok(rights
        .into_iter()
        .map(|(right, namespaces)| AccountRight {
            namespaces,
            ..right
        })
        .collect())
}

/// Faults in an account's rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Requests that were refused because a right is missing.
    pub forbidden: BTreeSet<Use>,
    /// Requests that were allowed, but not by any of these rights.
    pub elsewhere: BTreeSet<Use>,
    /// Rights that were never used.
    pub unused: BTreeSet<AccountRight>,
}

impl Findings {
    pub fn none(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for used in &self.forbidden {
            writeln!(f, "refused: {}: {used}", used.user)?;
        }
        for used in &self.elsewhere {
            writeln!(f, "allowed by another right: {}: {used}", used.user)?;
        }
        for right in &self.unused {
            writeln!(f, "never used: {right}")?;
        }
        Ok(())
    }
}

/// Returns true if an allowed request used this right.
pub fn was_used(uses: &[Use], verb: &str, resource: &str) -> bool {
    uses.iter().any(|used| {
        used.verb == verb && used.resource == resource && used.outcome == Outcome::Allowed
    })
}

/// Compares used and given rights, for the accounts that have any of the rights.
pub fn check(uses: &[Use], rights: &BTreeSet<AccountRight>) -> Findings {
    let users: BTreeSet<&str> = rights.iter().map(|right| right.user.as_str()).collect();
    let mut findings = Findings {
        unused: rights.clone(),
        ..Findings::default()
    };
    for used in uses
        .iter()
        .filter(|used| users.contains(used.user.as_str()))
    {
        match used.outcome {
            // An API server that has just started refuses requests until it has read the RBAC
            // objects.
            Outcome::Forbidden if rights.iter().any(|right| right.covers(used)) => {}
            Outcome::Forbidden => {
                findings.forbidden.insert(used.clone());
            }
            Outcome::Allowed => {
                findings.unused.retain(|right| !right.covers(used));
                if !rights.iter().any(|right| right.covers(used)) {
                    findings.elsewhere.insert(used.clone());
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects() -> Vec<Value> {
        let to = |kind: &str, name: &str| json!({"kind": kind, "name": name});
        let heron = json!([{"kind": "ServiceAccount", "name": "heron", "namespace": "lodge"}]);
        vec![
            json!({"kind": "ClusterRole", "metadata": {"name": "materials"}, "rules": [
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "patch"]},
            ]}),
            json!({"kind": "Role", "metadata": {"name": "own", "namespace": "lodge"}, "rules": [
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"], "resourceNames": ["leader"]},
            ]}),
            json!({"kind": "RoleBinding", "metadata": {"name": "a", "namespace": "pond"}, "roleRef": to("ClusterRole", "materials"), "subjects": heron}),
            json!({"kind": "RoleBinding", "metadata": {"name": "a", "namespace": "lake"}, "roleRef": to("ClusterRole", "materials"), "subjects": heron}),
            json!({"kind": "RoleBinding", "metadata": {"name": "b", "namespace": "lodge"}, "roleRef": to("Role", "own"), "subjects": heron}),
        ]
    }

    fn event(
        verb: &str,
        group: &str,
        resource: &str,
        place: (&str, &str),
        decision: &str,
    ) -> String {
        json!({
            "verb": verb,
            "user": {"username": "system:serviceaccount:lodge:heron"},
            "objectRef": {"apiGroup": group, "resource": resource, "namespace": place.0, "name": place.1},
            "annotations": {"authorization.k8s.io/decision": decision},
        })
        .to_string()
    }

    fn check_log(events: &[String]) -> String {
        let uses = uses(&events.join("\n")).unwrap();
        check(&uses, &rights(&objects()).unwrap()).to_string()
    }

    #[test]
    fn a_right_used_in_one_namespace_counts_as_used() {
        let lease = event(
            "get",
            "coordination.k8s.io",
            "leases",
            ("lodge", "leader"),
            "allow",
        );
        let all = [
            event("get", "", "secrets", ("pond", "reed"), "allow"),
            event("patch", "", "secrets", ("lake", "reed"), "allow"),
            lease.clone(),
        ];
        assert_eq!(check_log(&all), "");
        assert_eq!(
            check_log(&[lease]),
            "never used: heron, ClusterRole materials: get secrets\n\
             never used: heron, ClusterRole materials: patch secrets\n"
        );
    }

    #[test]
    fn a_use_without_a_right_is_found() {
        let found = check_log(&[
            event("get", "", "secrets", ("pond", "reed"), "allow"),
            event("patch", "", "secrets", ("pond", "reed"), "allow"),
            // Another object, and another namespace.
            event(
                "get",
                "coordination.k8s.io",
                "leases",
                ("lodge", "other"),
                "allow",
            ),
            event("get", "", "secrets", ("reef", "reed"), "forbid"),
        ]);
        assert_eq!(
            found,
            "refused: system:serviceaccount:lodge:heron: get secrets reef/reed\n\
             allowed by another right: system:serviceaccount:lodge:heron: get leases.coordination.k8s.io lodge/other\n\
             never used: heron, Role lodge/own: get leases.coordination.k8s.io leader\n"
        );
    }

    #[test]
    fn refusing_a_given_right_is_neither_a_use_nor_a_fault() {
        let found = check_log(&[
            event("get", "", "secrets", ("pond", "reed"), "forbid"),
            event("patch", "", "secrets", ("pond", "reed"), "allow"),
            event(
                "get",
                "coordination.k8s.io",
                "leases",
                ("lodge", "leader"),
                "allow",
            ),
        ]);
        assert_eq!(
            found,
            "never used: heron, ClusterRole materials: get secrets\n"
        );
    }

    #[test]
    fn an_undecodable_log_is_an_error() {
        uses("{\"verb\": \"get\"").unwrap_err();
        uses("{\"user\": {}}").unwrap_err();
    }

    #[test]
    fn a_wildcard_right_is_an_error() {
        let mut objects = objects();
        objects[0]["rules"][0]["verbs"] = json!(["*"]);
        rights(&objects).unwrap_err();
    }

    #[test]
    fn a_binding_of_a_missing_role_is_an_error() {
        rights(&objects()[2..3]).unwrap_err();
    }

    #[test]
    fn an_apply_uses_the_right_to_create_that_name_alone() {
        let role = |names: Value| {
            let bound = json!({"kind": "ServiceAccount", "name": "heron", "namespace": "lodge"});
            let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "patch"], "resourceNames": names});
            let objects = [
                json!({"kind": "Role", "metadata": {"name": "own", "namespace": "lodge"}, "rules": [rule]}),
                json!({"kind": "RoleBinding", "metadata": {"name": "a", "namespace": "lodge"}, "roleRef": {"kind": "Role", "name": "own"}, "subjects": [bound]}),
            ];
            let apply = event("patch", "", "pods", ("lodge", "reed"), "allow");
            check(&uses(&apply).unwrap(), &rights(&objects).unwrap()).to_string()
        };
        assert_eq!(role(json!(["reed"])), "");
        let unused = "never used: heron, Role lodge/own: create pods\n";
        assert_eq!(role(json!([])), unused);
    }
}

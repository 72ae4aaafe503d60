//! The last write of a grant before a call, in the API server's audit log.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use toolcrib_compile::{Kind, ObjectRef};
use toolcrib_crds::GROUP;

use crate::failure::Failure;
use crate::record::read_lines;

/// A write, by the user whom the API server authenticated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct UserWrite {
    pub user: String,
    /// The user whose rights were used, if that was another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonated: Option<String>,
    pub verb: String,
    pub time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// The parts of an `audit.k8s.io/v1` Event that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(default)]
    stage: String,
    verb: String,
    user: User,
    impersonated_user: Option<User>,
    object_ref: Option<Reference>,
    response_status: Option<Status>,
    request_received_timestamp: Option<String>,
    user_agent: Option<String>,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reference {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

const WRITES: [&str; 4] = ["create", "update", "patch", "delete"];

/// Reads the log, and returns the last successful write of the object at or before `when`. `kind`:
/// `None` for a grant of either kind.
pub(super) fn last_write(
    logs: &[PathBuf],
    kind: Option<Kind>,
    key: &ObjectRef,
    when: &str,
) -> Result<Option<UserWrite>, Failure> {
    let when: Option<Timestamp> = when.parse().ok();
    let mut last: Option<(Timestamp, UserWrite)> = None;
    let (mut events, mut lines) = (0_usize, 0_usize);
    read_lines(logs, |_, line| {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        lines += 1;
        let Ok(event) = serde_json::from_slice::<Event>(line) else {
            return Ok(());
        };
        events += 1;
        let Some((time, write)) = event.write_of(kind, key) else {
            return Ok(());
        };
        let is_before = when.is_none_or(|when| time <= when);
        if is_before && last.as_ref().is_none_or(|(latest, _)| *latest <= time) {
            last = Some((time, write));
        }
        Ok(())
    })?;
    if lines > 0 && events == 0 {
        return Err(Failure::usage(
            "no line of --audit-log is an event of an API server's audit log: name the file of kube-apiserver's --audit-log-path",
        ));
    }
    Ok(last.map(|(_, write)| write))
}

impl Event {
    /// Returns the successful write of the object with its time, if the event is one.
    fn write_of(self, kind: Option<Kind>, key: &ObjectRef) -> Option<(Timestamp, UserWrite)> {
        let is_done = self.stage == "ResponseComplete"
            && WRITES.contains(&self.verb.as_str())
            && self
                .response_status
                .is_some_and(|it| (200..300).contains(&it.code));
        if !is_done || !self.object_ref?.is_of(kind, key) {
            return None;
        }
        let time = self.request_received_timestamp?;
        let write = UserWrite {
            user: self.user.username,
            impersonated: self.impersonated_user.map(|it| it.username),
            verb: self.verb,
            program: self.user_agent,
            time: time.clone(),
        };
        Some((time.parse().ok()?, write))
    }
}

impl Reference {
    fn is_of(&self, kind: Option<Kind>, key: &ObjectRef) -> bool {
        let is_kind = match self.resource.as_str() {
            "toolgrants" => kind.is_none_or(|kind| kind == Kind::ToolGrant),
            "tooldefaults" => kind.is_none_or(|kind| kind == Kind::ToolDefaults),
            _ => false,
        };
        is_kind
            && self.api_group == GROUP
            && self.subresource.is_empty()
            && (&*self.namespace, &*self.name) == (&*key.namespace, &*key.name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_successful_writes_of_the_grant_itself_count() {
        let key = ObjectRef::new("pond", "readers");
        let event = |change: fn(&mut serde_json::Value)| {
            let mut event = json!({
                "kind": "Event", "apiVersion": "audit.k8s.io/v1", "stage": "ResponseComplete",
                "verb": "patch", "user": {"username": "alice"},
                "objectRef": {"apiGroup": "toolcrib.dev", "resource": "toolgrants", "namespace": "pond", "name": "readers"},
                "responseStatus": {"code": 200},
                "requestReceivedTimestamp": "2026-11-24T07:00:00.000000Z",
            });
            change(&mut event);
            let event: Event = serde_json::from_value(event).unwrap();
            event.write_of(None, &key).map(|(_, write)| write.user)
        };
        assert_eq!(event(|_| {}).as_deref(), Some("alice"));
        let others: [fn(&mut serde_json::Value); 6] = [
            |it| it["verb"] = "get".into(),
            |it| it["stage"] = "RequestReceived".into(),
            |it| it["responseStatus"]["code"] = 403.into(),
            |it| it["objectRef"]["subresource"] = "status".into(),
            |it| it["objectRef"]["name"] = "writers".into(),
            |it| it["objectRef"]["resource"] = "surfaces".into(),
        ];
        for other in others {
            assert_eq!(event(other), None);
        }
    }
}

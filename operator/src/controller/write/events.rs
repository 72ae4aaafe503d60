//! Writes Kubernetes Events, which `kubectl describe` shows.
//!
//! An Event's name is derived from its content, so the same Event again (after a restart, or from
//! another replica) is refused with AlreadyExists. kube's own Recorder merges Events that differ
//! only in their note, so a second missing tool would not be reported.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use toolcrib_bounds::digest::Parts;

const CONTROLLER: &str = "toolcrib.dev/controller";
/// Most bytes of a note that the API server accepts.
const NOTE: usize = 1024;

pub struct Events {
    client: Client,
    instance: String,
}

/// Reason and note of an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// A diagnostic's code or a condition's reason.
    pub reason: String,
    pub note: String,
}

/// The type of an Event, and its identity besides reason and note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion<'a> {
    /// A Warning: a state, which is reported once while it lasts.
    State,
    /// The same state once more after it had ended. The object's version distinguishes the times.
    StateAgain { version: &'a str },
    /// A Normal Event: a change, which may happen again. The object's version distinguishes the
    /// changes.
    Change { version: &'a str },
}

impl Events {
    pub fn new(client: Client, instance: &str) -> Self {
        Self {
            client,
            instance: instance.to_owned(),
        }
    }

    /// Writes a Warning; `again` is the object's version if the state had ended since the last one.
    /// Returns whether it is new.
    pub async fn warn(
        &self,
        about: &ObjectReference,
        warning: &Warning,
        again: Option<&str>,
    ) -> Result<bool, kube::Error> {
        let occasion = match again {
            None => Occasion::State,
            Some(version) => Occasion::StateAgain { version },
        };
        self.create(about, warning, occasion).await
    }

    /// Writes a Normal Event about a change of the object's `version`. Returns whether it is new.
    pub async fn note(
        &self,
        about: &ObjectReference,
        reason: &str,
        note: String,
        version: &str,
    ) -> Result<bool, kube::Error> {
        let text = Warning {
            reason: reason.to_owned(),
            note,
        };
        self.create(about, &text, Occasion::Change { version })
            .await
    }

    async fn create(
        &self,
        about: &ObjectReference,
        text: &Warning,
        occasion: Occasion<'_>,
    ) -> Result<bool, kube::Error> {
        let namespace = namespace_of(about);
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let event = event(about, text, occasion, &self.instance, Timestamp::now());
        match api.create(&PostParams::default(), &event).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The namespace of an Event about an object. Events about objects of the whole cluster are in
/// `default`.
fn namespace_of(about: &ObjectReference) -> String {
    let namespace = about.namespace.as_deref();
    namespace.unwrap_or("default").to_owned()
}

fn event(
    about: &ObjectReference,
    warning: &Warning,
    occasion: Occasion<'_>,
    instance: &str,
    now: Timestamp,
) -> Event {
    let (type_, version) = match occasion {
        Occasion::State => ("Warning", ""),
        Occasion::StateAgain { version } => ("Warning", version),
        Occasion::Change { version } => ("Normal", version),
    };
    let note = toolcrib_bounds::cut(&warning.note, NOTE).into_owned();
    let mut hash = Parts::default();
    for part in [
        about.uid.as_deref().unwrap_or_default(),
        &warning.reason,
        &note,
        version,
    ] {
        hash.push(part);
    }
    let hash = hex::encode(&hash.digest()[..8]);
    let name = about.name.clone().unwrap_or_default();
    Event {
        metadata: ObjectMeta {
            namespace: Some(namespace_of(about)),
            name: Some(format!("{}.{hash}", name.get(..200).unwrap_or(&name))),
            ..ObjectMeta::default()
        },
        type_: Some(type_.to_owned()),
        reason: Some(warning.reason.clone()),
        action: Some("Compile".to_owned()),
        note: Some(note),
        regarding: Some(about.clone()),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        event_time: Some(MicroTime(now)),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(uid: &str, reason: &str, note: &str) -> String {
        name_on(Occasion::State, uid, reason, note)
    }

    fn name_on(occasion: Occasion<'_>, uid: &str, reason: &str, note: &str) -> String {
        let about = ObjectReference {
            name: Some("otter".into()),
            namespace: Some("pond".into()),
            uid: Some(uid.into()),
            ..ObjectReference::default()
        };
        let warning = Warning {
            reason: reason.into(),
            note: note.into(),
        };
        let event = event(&about, &warning, occasion, "heron", Timestamp::UNIX_EPOCH);
        assert!(event.note.as_ref().unwrap().len() <= NOTE);
        event.metadata.name.unwrap()
    }

    #[test]
    fn an_events_name_depends_on_its_content() {
        let base = name("u1", "ToolNotFound", "spec.tools[0]: fish");
        assert_eq!(base, name("u1", "ToolNotFound", "spec.tools[0]: fish"));
        assert_ne!(base, name("u2", "ToolNotFound", "spec.tools[0]: fish"));
        assert_ne!(base, name("u1", "ToolNotFound", "spec.tools[1]: newt"));
        assert!(base.starts_with("otter."));
        name("u1", "ToolNotFound", &"é".repeat(2_000));
    }

    #[test]
    fn a_repeated_change_is_another_event() {
        let name = |version| name_on(Occasion::Change { version }, "u1", "ToolsGained", "fish");
        assert_eq!(name("7"), name("7"));
        assert_ne!(name("7"), name("9"));
    }

    #[test]
    fn a_state_that_returns_is_another_event() {
        let name = |occasion| name_on(occasion, "u1", "ProviderKeyRefused", "401");
        let again = |version| name(Occasion::StateAgain { version });
        assert_ne!(name(Occasion::State), again("7"));
        assert_ne!(again("7"), again("9"));
    }
}

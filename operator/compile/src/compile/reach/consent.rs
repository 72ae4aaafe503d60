//! Decides whether agents of a namespace may call a surface at all.
//!
//! Invariant: if a surface of another namespace does not consent, no finding depends on it.
//! Otherwise users could find out with a grant of their own which surfaces others have.

use toolcrib_crds::{NamespacesFrom, Surface};

use crate::diagnostics::finding::Finding;
use crate::near::Suggestions;
use crate::objects::selector::selects;
use crate::surface::{self, ResolvedSurface};
use crate::{Code, Kind, ObjectRef, Objects};

/// Resolves the surface for agents of `consumer_namespace`, or returns why they may not use it.
/// The finding's field is `name` or `namespace` of the reference to the surface.
pub(crate) fn open(
    objects: &dyn Objects,
    surface: &ObjectRef,
    consumer_namespace: &str,
    suggestions: &mut Suggestions,
) -> Result<ResolvedSurface, Finding> {
    let found = objects.surface(surface);
    let open = found.filter(|found| consents(objects, surface, found, consumer_namespace));
    if let Some(found) = open {
        return Ok(surface::resolve(objects, surface, found));
    }
    if surface.namespace != consumer_namespace {
        return Err(Finding::new(
            "namespace",
            Code::ConsentMissing,
            format!(
                "surface {surface} is not open to namespace {consumer_namespace}: its owner must allow it in spec.consumers.namespaces, if there is such a surface"
            ),
        ));
    }
    if let Some(why) = objects.unusable(Kind::Surface, surface) {
        let message = format!("surface {surface} cannot be used: {}", why.reason);
        return Err(Finding::new("name", Code::SurfaceNotFound, message));
    }
    Err(not_found(objects, surface, suggestions))
}

/// Whether a surface of `consumer_namespace` does not exist. A surface that exists and cannot be
/// used is not missing, nor is one of another namespace.
pub(crate) fn is_missing(
    objects: &dyn Objects,
    surface: &ObjectRef,
    consumer_namespace: &str,
) -> bool {
    let exists = surface.namespace != consumer_namespace
        || objects.surface(surface).is_some()
        || objects.unusable(Kind::Surface, surface).is_some();
    !exists
}

/// Returns the finding for a surface that does not exist.
pub(crate) fn not_found(
    objects: &dyn Objects,
    surface: &ObjectRef,
    suggestions: &mut Suggestions,
) -> Finding {
    let meant = other_in(objects, Kind::Surface, surface, suggestions);
    let message = format!("surface {surface} not found{meant}: create it, or correct the name");
    Finding::new("name", Code::SurfaceNotFound, message)
}

/// Suggests the name of an object of the same namespace for one that does not exist.
pub(crate) fn other_in(
    objects: &dyn Objects,
    kind: Kind,
    missing: &ObjectRef,
    suggestions: &mut Suggestions,
) -> String {
    // The list of names is a copy.
    if suggestions.are_used_up() {
        return String::new();
    }
    let others = objects.names_in(kind, &missing.namespace);
    suggestions.other(&missing.name, others.iter().map(String::as_str))
}

/// Returns whether the surface's owner consents. Unknown labels are no consent.
pub(crate) fn consents(
    objects: &dyn Objects,
    key: &ObjectRef,
    surface: &Surface,
    consumer_namespace: &str,
) -> bool {
    if key.namespace == consumer_namespace {
        return true;
    }
    let Some(consent) = surface
        .spec
        .consumers
        .as_ref()
        .and_then(|consumers| consumers.namespaces.as_ref())
    else {
        return false;
    };
    match consent.from {
        NamespacesFrom::Same => false,
        NamespacesFrom::All => true,
        NamespacesFrom::Selector => consent.selector.as_ref().is_some_and(|selector| {
            let labels = objects.namespace_labels(consumer_namespace);
            selects(selector, consumer_namespace, labels) == Some(true)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Settings, check_grant, compile, load};

    const POND: &str = r#"
apiVersion: toolcrib.dev/v1alpha1
kind: Agent
metadata: {name: otter, namespace: pond}
spec: {surfaces: [{name: news, namespace: lake}]}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ToolGrant
metadata: {name: reads, namespace: pond}
spec: {agents: [otter], tools: [{surface: {name: news, namespace: lake}, allow: [read]}]}
"#;
    const LAKE: &str = r#"
apiVersion: toolcrib.dev/v1alpha1
kind: Surface
metadata: {name: news, namespace: lake}
spec:
  url: https://news.example
  descriptor: {version: 2, tools: [{name: read, inputSchema: {type: object}, http: {method: GET, path: /}}]}
"#;

    #[test]
    fn a_foreign_surface_without_consent_is_not_revealed() {
        let told = |lake: &str, undecodable: bool| {
            let texts = [POND, lake].map(|text| ("world.yaml".to_owned(), text.to_owned()));
            let mut inputs = load(texts, Settings::default()).inputs;
            let (otter, news) = (
                ObjectRef::new("pond", "otter"),
                ObjectRef::new("lake", "news"),
            );
            if undecodable {
                inputs.set_undecodable(Kind::Surface, news, "hunter2".to_owned());
            }
            let compiled = compile(&inputs, &otter).expect("the agent");
            let why = crate::why_not(&inputs, &compiled, "news.write");
            let grant = check_grant(&inputs, &ObjectRef::new("pond", "reads")).expect("the grant");
            (
                compiled.diagnostics,
                compiled.withheld,
                why,
                grant.diagnostics,
            )
        };
        let closed = told(LAKE, false);
        assert_eq!(closed.3[0].code, Code::ConsentMissing);
        assert_eq!(closed, told("", false));
        assert_eq!(closed, told("", true));
        // Surfaces of the own namespace are reported in full.
        let own = POND.replace(", namespace: lake", "");
        let own = load([("world.yaml".to_owned(), own)], Settings::default()).inputs;
        let grant = check_grant(&own, &ObjectRef::new("pond", "reads")).expect("the grant");
        assert_eq!(grant.diagnostics[0].code, Code::SurfaceNotFound);
    }
}

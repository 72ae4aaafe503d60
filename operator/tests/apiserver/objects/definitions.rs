//! The CRDs on a real API server: the values that it stores, and the texts of `kubectl explain`.

use kube::api::{Api, DynamicObject};
use kube::api::{ApiResource, DeleteParams};
use serde_json::Value;
use toolcrib_crds::Surface;

use crate::support::harness::Harness;

const OTHER_TYPES: &str =
    include_str!("../../../../crds/tests/rules/surface-descriptor-of-other-types.yaml");

#[tokio::test(flavor = "multi_thread")]
async fn a_descriptor_of_any_content_is_stored_whole() {
    let harness = Harness::new().await;
    let mut sent: Value = serde_yaml::from_str(OTHER_TYPES).expect("YAML");
    sent["metadata"]["namespace"] = harness.pond.clone().into();
    let resource = ApiResource::erase::<Surface>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(harness.client.clone(), &harness.pond, &resource);
    let created: DynamicObject = serde_json::from_value(sent.clone()).expect("an object");
    let stored = api
        .create(&Default::default(), &created)
        .await
        .expect("created");
    assert_eq!(stored.data["spec"], sent["spec"]);
    api.delete("kelp", &DeleteParams::default())
        .await
        .expect("deleted");
    // Server-side apply uses the types of the definition, too.
    harness.apply(sent.clone()).await;
    let stored = api.get("kelp").await.expect("applied");
    assert_eq!(stored.data["spec"], sent["spec"]);
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keys_of_a_descriptor_are_explained() {
    let harness = Harness::new().await;
    harness
        .eventually("the definition's words are served", || async {
            let request = http::Request::get("/openapi/v3/apis/toolcrib.dev/v1alpha1")
                .body(kube::client::Body::empty())
                .expect("a request");
            let answer = harness.client.send(request).await.expect("an answer");
            let bytes = http_body_util::BodyExt::collect(answer.into_body())
                .await
                .expect("a body")
                .to_bytes();
            let document: Value = serde_json::from_slice(&bytes).ok()?;
            let tool = document.pointer(
                "/components/schemas/dev.toolcrib.v1alpha1.Surface/properties/spec/properties\
                 /descriptor/properties/tools/items/properties",
            )?;
            let words = tool.pointer("/http/properties/body_key/description")?;
            words
                .as_str()
                .is_some_and(|words| words.contains("wraps the body"))
                .then_some(())
        })
        .await;
    harness.end().await;
}

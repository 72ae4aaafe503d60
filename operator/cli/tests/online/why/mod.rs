//! `why`: a call of a record against the grant that the API server has.

use super::*;

const NAMESPACE: &str = "why";

/// The folder of the offline cases.
fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn in_namespace(text: &str) -> String {
    text.replace("namespace: pond", &format!("namespace: {NAMESPACE}"))
        .replace(
            r#""namespace":"pond""#,
            &format!(r#""namespace":"{NAMESPACE}""#),
        )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_compared_with_the_grant_in_the_cluster() {
    let client = client().await;
    define(&client).await;
    label(&client, NAMESPACE, &json!({})).await;
    let objects = fs::read_to_string(tests().join("cases/why/objects.yaml")).unwrap();
    let objects: Vec<Value> = toolcrib_compile::yaml::documents(&in_namespace(&objects))
        .into_iter()
        .map(|document| document.value.unwrap())
        // A policy of the whole cluster would change other tests.
        .filter(|object| object["kind"] != "ClusterToolPolicy")
        .collect();
    for object in &objects {
        apply(&client, NAMESPACE, object).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("history.jsonl");
    let lines = fs::read_to_string(tests().join("record/history.jsonl")).unwrap();
    fs::write(&record, in_namespace(&lines)).unwrap();
    let why = |call: &str| answer(&["why", call, "-f", record.to_str().unwrap()]);
    let assert_said = |said: &str, line: &str| {
        assert!(
            said.lines().any(|it| it.starts_with(line)),
            "{line}: {said}"
        );
    };

    let said = why("r1-1-0");
    assert_said(
        &said,
        "allowed by  ToolGrant why/readers, unchanged since the call",
    );
    assert_said(&said, "written by  gitops, Apply at 20");
    assert_said(&said, "user        not known: ");
    let said = why("r2-1-0");
    assert_said(
        &said,
        "to allow    surface why/desk has the tool sell, and no ToolGrant",
    );

    let grant = objects.iter().find(|it| it["kind"] == "ToolGrant").unwrap();
    let mut narrower = grant.clone();
    narrower["spec"]["tools"][1]["arguments"] = json!({"pin": {"symbol": "OTTR"}});
    apply(&client, NAMESPACE, &narrower).await;
    assert_said(
        &why("r1-1-0"),
        "allowed by  ToolGrant why/readers, changed since the call",
    );

    delete(&client, std::slice::from_ref(grant)).await;
    let gone = "allowed by  ToolGrant or ToolDefaults why/readers, gone";
    assert_said(&why("r1-1-0"), gone);
    delete(&client, &objects).await;
}

//! The chart with Helm 3: its lint, and the same objects as with Helm 4.

use anyhow::{Result, ensure};
use serde_json::Value;
use toolcrib_e2e::cluster::process::run;

use crate::chart::{folder, helm3, helm4, rendered, sets_of_values, title, values_file};

#[test]
fn helm_3_finds_no_fault_in_the_chart() -> Result<()> {
    for values in sets_of_values() {
        let file = values_file(&values)?;
        let mut helm = helm3()?;
        helm.args(["lint", "--strict", "--values"])
            .arg(file.path())
            .arg(folder());
        run(&mut helm)?;
    }
    // The lint does look.
    let file = values_file("image: {tags: wrong}")?;
    let mut helm = helm3()?;
    helm.args(["lint", "--strict", "--values"])
        .arg(file.path())
        .arg(folder());
    let error = run(&mut helm).expect_err("a value that the chart does not have");
    ensure!(format!("{error:#}").contains("tags"), "{error:#}");
    Ok(())
}

#[test]
fn helm_3_renders_the_objects_of_helm_4() -> Result<()> {
    let sets = sets_of_values();
    for (values, kinds) in sets.iter().flat_map(|it| [(it, false), (it, true)]) {
        let [three, four] = [helm3()?, helm4()?].map(|helm| rendered(helm, values, kinds));
        let [three, four] = [by_name(three?), by_name(four?)];
        for (one, other) in three.iter().zip(&four) {
            assert_eq!(one, other);
        }
        assert_eq!(three.len(), four.len());
        eprintln!("{} objects", four.len());
    }
    Ok(())
}

/// Helm 3 and 4 order the objects of one kind differently. Hooks may have the name of another hook.
fn by_name(mut objects: Vec<Value>) -> Vec<Value> {
    objects.sort_by_cached_key(|object| (title(object), object.to_string()));
    objects
}

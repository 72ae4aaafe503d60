use cyclonedx_bom::prelude::{Bom, SpecVersion, Validate as _};

use super::*;
use crate::images::{Contents, IMAGES};

fn sbom_of(image: &str) -> Sbom {
    let found = IMAGES.iter().find(|known| known.name == image);
    match found.expect("an image").contents {
        Contents::Programs(programs) => Sbom::describe(image, programs).expect("an SBOM"),
        Contents::PythonRunner | Contents::NodePackages(_) => panic!("{image} has no programs"),
    }
}

fn components(sbom: &Sbom) -> Vec<Value> {
    let bom: Value = serde_json::from_str(sbom.text()).expect("JSON");
    bom["components"].as_array().expect("a list").clone()
}

fn component(components: &[Value], name: &str) -> Option<Value> {
    let found = components
        .iter()
        .find(|component| component["name"] == name);
    found.cloned()
}

#[test]
fn every_sbom_is_valid_and_reproducible() {
    for image in &IMAGES {
        if !matches!(image.contents, Contents::Programs(_)) {
            continue;
        }
        let sbom = sbom_of(image.name);
        assert_eq!(sbom_of(image.name), sbom, "{}", image.name);
        let bom = Bom::parse_from_json(sbom.text().as_bytes()).expect("CycloneDX");
        assert!(bom.spec_version == SpecVersion::V1_5);
        let validation = bom.validate_version(SpecVersion::V1_5);
        assert!(validation.passed(), "{}: {validation:?}", image.name);
        assert!(bom.serial_number.is_none(), "a random number");
        let metadata = bom.metadata.expect("metadata");
        assert!(metadata.timestamp.is_none(), "a time");
    }
}

#[test]
fn a_linked_crate_has_version_licence_purl_and_checksum() {
    let lock = include_str!("../../../../Cargo.lock");
    let tokio = checksums(lock)
        .into_iter()
        .find(|(key, _)| key.name == "tokio");
    let (Crate { version, .. }, checksum) = tokio.expect("tokio is locked");
    for image in ["operator", "sidecar", "mcp-stdio"] {
        let found = component(&components(&sbom_of(image)), "tokio").expect("tokio is linked");
        assert_eq!(
            found,
            json!({
                "type": "library",
                "bom-ref": format!("tokio@{version}"),
                "name": "tokio",
                "version": version,
                "scope": "required",
                "licenses": [{"expression": "MIT"}],
                "purl": format!("pkg:cargo/tokio@{version}"),
                "hashes": [{"alg": "SHA-256", "content": checksum}],
            })
        );
    }
}

#[test]
fn each_image_lists_its_own_crates_and_the_static_libraries() {
    let cases = [
        (
            "operator",
            "toolcrib-operator",
            "kube-client",
            "hickory-resolver",
        ),
        (
            "sidecar",
            "toolcrib-sidecar",
            "hickory-resolver",
            "kube-client",
        ),
        ("mcp-stdio", "toolcrib-mcp-stdio", "hyper", "kube-client"),
    ];
    for (image, program, linked, not_linked) in cases {
        let found = components(&sbom_of(image));
        let program = component(&found, program).expect("the program");
        assert_eq!(program["type"], "application", "{image}");
        assert!(program.get("purl").is_none(), "published nowhere");
        for name in [linked, "rust-std", "libc6-dev"] {
            assert!(component(&found, name).is_some(), "{image}: {name}");
        }
        assert_eq!(component(&found, not_linked), None, "{image}");
    }
}

#[test]
fn crates_of_tests_build_scripts_and_macros_are_not_listed() {
    for image in ["operator", "sidecar", "mcp-stdio"] {
        let found = components(&sbom_of(image));
        for name in [
            "proptest",
            "insta",
            "tempfile",
            "allocation-counter",
            "cc",
            "syn",
            "serde_derive",
            "tokio-macros",
        ] {
            assert_eq!(component(&found, name), None, "{image}");
        }
    }
}

#[test]
fn the_dependencies_of_a_repeated_crate_are_kept() {
    let tree = "0otter v0.1.0 (/pond)\tApache-2.0\t\n\
                1heron v1.2.3\tMIT/Apache-2.0\t\n\
                2reed v4.0.0+5\tMIT\t\n\
                1newt v0.3.0\tISC\t\n\
                2heron v1.2.3\tMIT/Apache-2.0\t (*)\n";
    let key = |name: &str, version: &str| Crate {
        name: name.into(),
        version: version.into(),
    };
    let linked = |licence: &str, own: bool, dependencies: &[Crate]| LinkedCrate {
        licence: licence.into(),
        own,
        dependencies: dependencies.iter().cloned().collect(),
    };
    let (heron, newt) = (key("heron", "1.2.3"), key("newt", "0.3.0"));
    let reed = key("reed", "4.0.0+5");
    let want = BTreeMap::from([
        (
            key("otter", "0.1.0"),
            linked("Apache-2.0", true, &[heron.clone(), newt.clone()]),
        ),
        (
            heron.clone(),
            linked("MIT OR Apache-2.0", false, std::slice::from_ref(&reed)),
        ),
        (reed, linked("MIT", false, &[])),
        (newt, linked("ISC", false, &[heron])),
    ]);
    assert_eq!(parse_tree(tree).expect("a tree"), want);
    let error = parse_tree("0otter v0.1.0 (/pond)\t\t\n").expect_err("no licence");
    assert_eq!(error.to_string(), "otter 0.1.0 has no licence");
}

#[test]
fn an_sbom_that_differs_from_the_build_is_an_error() {
    let messages = [
        json!({"reason": "compiler-artifact", "filenames": ["/t/x86_64-unknown-linux-gnu/image/deps/libheron.rlib"],
            "package_id": "registry+https://github.com/rust-lang/crates.io-index#heron@1.2.3"}),
        json!({"reason": "compiler-artifact", "filenames": ["/t/x86_64-unknown-linux-gnu/image/otter"],
            "package_id": "path+file:///pond/otter#0.1.0"}),
        json!({"reason": "compiler-artifact", "filenames": ["/t/image/deps/libsyn.rlib"],
            "package_id": "registry+https://github.com/rust-lang/crates.io-index#syn@2.0.0"}),
        json!({"reason": "build-finished", "success": true}),
    ];
    let messages: String = messages.iter().map(|line| format!("{line}\n")).collect();
    let compiled = compiled_crates(&messages, Path::new("/t")).expect("messages");
    let key = |name: &str, version: &str| Crate {
        name: name.into(),
        version: version.into(),
    };
    let (heron, otter) = (key("heron", "1.2.3"), key("otter", "0.1.0"));
    assert_eq!(compiled, BTreeSet::from([heron, otter.clone()]));

    let sbom = |crates: &[Crate]| Sbom {
        crates: crates.iter().cloned().collect(),
        text: String::new(),
    };
    let error = sbom(&[otter, key("newt", "0.3.0")]).check(&compiled);
    assert_eq!(
        error.expect_err("they differ").to_string(),
        "the SBOM differs from the build: it lacks [heron 1.2.3], and lists [newt 0.3.0], \
         which were not compiled"
    );
    let same: Vec<Crate> = compiled.iter().cloned().collect();
    sbom(&same).check(&compiled).expect("the same");
}

//! A Prometheus in the node's network, which reaches every pod.

use std::fs::{self, File};
use std::process::Child;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use toolcrib_e2e::cluster::Cluster;
use toolcrib_e2e::cluster::process::run;

/// On the node's loopback, which is not this machine's.
const ADDRESS: &str = "127.0.0.1:9090";

pub struct Prometheus {
    cluster: Cluster,
    process: Child,
    folder: TempDir,
}

impl Prometheus {
    /// Starts it with these scrape jobs and a file of rules.
    pub fn start(cluster: &Cluster, jobs: &[Value], rules: &Value) -> Result<Prometheus> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        // JSON is YAML.
        fs::write(path("rules.yaml"), rules.to_string())?;
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [path("rules.yaml")],
            "scrape_configs": jobs,
        });
        fs::write(path("prometheus.yaml"), config.to_string())?;
        let log = File::create(path("log"))?;
        let process = cluster
            .on_node("prometheus")
            .context("a node of ours")?
            .arg(format!(
                "--config.file={}",
                path("prometheus.yaml").display()
            ))
            .arg(format!("--storage.tsdb.path={}", path("data").display()))
            .arg(format!("--web.listen-address={ADDRESS}"))
            .arg("--web.enable-lifecycle")
            .stderr(log.try_clone()?)
            .stdout(log)
            .spawn()
            .context("start prometheus")?;
        let prometheus = Prometheus {
            cluster: cluster.clone(),
            process,
            folder,
        };
        let ready = ["--retry", "60", "--retry-delay", "1", "--retry-connrefused"];
        let answer = prometheus.ask(&ready, "/-/ready");
        answer.with_context(|| prometheus.log())?;
        Ok(prometheus)
    }

    /// The series of an instant query.
    pub fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let encoded = format!("query={expression}");
        let answer = self.ask(&["--data-urlencode", &encoded], "/api/v1/query");
        let answer: Value = serde_json::from_str(&answer.with_context(|| expression.to_owned())?)?;
        let data = &answer["data"];
        ensure!(data["resultType"] == "vector", "{expression}: {answer}");
        Ok(data["result"].as_array().context("series")?.clone())
    }

    /// The rules with the state of their evaluation.
    pub fn rules(&self) -> Result<Vec<Value>> {
        let answer: Value = serde_json::from_str(&self.ask(&[], "/api/v1/rules")?)?;
        let groups = answer["data"]["groups"].as_array().context("groups")?;
        let rules = groups.iter().filter_map(|group| group["rules"].as_array());
        Ok(rules.flatten().cloned().collect())
    }

    fn ask(&self, arguments: &[&str], path: &str) -> Result<String> {
        run(self
            .cluster
            .on_node("curl")
            .context("a node of ours")?
            .args(["-sS", "--fail-with-body", "--max-time", "60"])
            .args(arguments)
            .arg(format!("http://{ADDRESS}{path}")))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It is in another process namespace, where a signal to nsenter does not reach it.
        let asked = self.ask(&["--request", "POST"], "/-/quit");
        let ended = match asked {
            Ok(_) => self.process.wait().map(drop),
            Err(_) => self.process.kill(),
        };
        if let Err(error) = ended {
            eprintln!("prometheus has not ended: {error}\n{}", self.log());
        }
    }
}

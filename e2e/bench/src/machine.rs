//! The machine on which the figures were measured.

use std::fs::read_to_string;

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub kernel: String,
    /// One-minute load average before the run, which shows other work on the machine.
    pub load: String,
}

impl Machine {
    pub fn this() -> Self {
        let cpu = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .and_then(|line| line.split(':').nth(1));
        let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let load = read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            cpu: model.unwrap_or("unknown").trim().to_string(),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            kernel: kernel.trim().to_string(),
            load: load.split(' ').next().unwrap_or_default().to_string(),
        }
    }
}

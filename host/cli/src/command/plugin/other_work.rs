//! CPU share of other programs during a measurement, from Linux's `/proc`.

/// Clock ticks at the start of a measurement. `None` if the system does not report them.
pub struct OtherWork(Option<Ticks>);

#[derive(Clone, Copy)]
struct Ticks {
    /// Ticks of all processors, idle ones included.
    total: u64,
    idle: u64,
    /// Ticks of this process.
    own: u64,
}

impl OtherWork {
    pub fn since_now() -> Self {
        Self(Ticks::now())
    }

    /// Returns the CPU share that other programs have used since, 0 to 1; `None` if the system does
    /// not report it.
    pub fn share(&self) -> Option<f64> {
        let then = self.0?;
        let now = Ticks::now()?;
        let total = now.total.checked_sub(then.total).filter(|total| *total > 0)?;
        let not_others = now.idle.saturating_sub(then.idle) + now.own.saturating_sub(then.own);
        Some(total.saturating_sub(not_others) as f64 / total as f64)
    }
}

impl Ticks {
    fn now() -> Option<Self> {
        let machine = std::fs::read_to_string("/proc/stat").ok()?;
        let process = std::fs::read_to_string("/proc/self/stat").ok()?;
        Self::parse(&machine, &process)
    }

    fn parse(machine: &str, process: &str) -> Option<Self> {
        // cpu user nice system idle iowait irq softirq steal …; guests are counted as user already.
        let line = machine.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).map_while(|number| number.parse().ok()).collect();
        let idle = ticks.get(3)? + ticks.get(4)?;
        // Fields 14 and 15, utime and stime; the name, field 2, ends with the last bracket.
        let mut fields = process.rsplit_once(')')?.1.split_whitespace().skip(11);
        let mut own = || fields.next()?.parse::<u64>().ok();
        Some(Self { total: ticks.iter().sum(), idle, own: own()? + own()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ticks_parse_from_proc_stat() {
        let machine = "cpu  100 1 20 500 30 0 4 5 60 0\ncpu0 50 0 10 250 15 0 2 2 30 0\n";
        let process = "42 (a (strange) name) R 1 42 42 0 -1 4194304 9 0 0 0 70 8 0 0 20 0 1 0 5";
        let Ticks { total, idle, own } = Ticks::parse(machine, process).unwrap();
        assert_eq!((total, idle, own), (660, 530, 78));
    }

    #[test]
    fn other_work_share_lies_in_unit_range() {
        let began = OtherWork::since_now();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(began.share().is_none_or(|share| (0.0..=1.0).contains(&share)));
    }
}

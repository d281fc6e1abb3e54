//! A strict reader of Prometheus' text format: what a scraper would refuse or warn of is an error here.

use std::collections::{BTreeMap, BTreeSet};

/// All metric families of a page, by name.
pub type Families = BTreeMap<String, Family>;

/// The samples of one metric.
#[derive(Clone, Debug, Default)]
pub struct Family {
    /// counter, gauge, histogram, summary or untyped.
    pub kind: String,
    /// What HELP says.
    pub help: String,
    /// Name with suffix, labels and value.
    pub samples: Vec<Sample>,
}

/// One line with a value.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The name as written, with `_bucket`, `_sum` or `_count`.
    pub name: String,
    /// Labels by name.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

impl Family {
    /// The sum of the samples whose labels include all of `labels`.
    pub fn sum(&self, labels: &[(&str, &str)]) -> f64 {
        let matches = |sample: &&Sample| {
            labels.iter().all(|&(name, value)| sample.labels.get(name).is_some_and(|v| v == value))
        };
        self.samples.iter().filter(matches).map(|sample| sample.value).sum()
    }
}

/// Reads a page.
///
/// # Errors
/// The line and what is wrong with it: HELP or TYPE missing, late or twice, families torn apart, bad names, labels
/// or values, samples twice, counters not named `_total`, histograms whose buckets do not add up.
pub fn parse(page: &str) -> Result<Families, String> {
    let mut families = Families::new();
    let mut current = String::new();
    let mut seen = BTreeSet::new();
    if !page.ends_with('\n') {
        return Err("the last line does not end".into());
    }
    for line in page.lines().filter(|line| !line.is_empty()) {
        let fault = |what: &str| format!("{what}: {line:?}");
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (keyword, name) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
            let text = words.next().unwrap_or("");
            if name != current {
                if families.contains_key(name) {
                    return Err(fault("a family in two places"));
                }
                name.clone_into(&mut current);
                families.insert(current.clone(), Family::default());
            }
            let family = families.get_mut(&current).expect("inserted");
            match keyword {
                "HELP" if family.help.is_empty() && family.samples.is_empty() => {
                    text.clone_into(&mut family.help)
                }
                "TYPE" if family.kind.is_empty() && family.samples.is_empty() => {
                    text.clone_into(&mut family.kind)
                }
                _ => return Err(fault("HELP or TYPE twice or late")),
            }
            continue;
        }
        let sample = sample(line).ok_or_else(|| fault("not a sample"))?;
        let family = families.get_mut(&current).ok_or_else(|| fault("a sample without TYPE"))?;
        let suffix =
            sample.name.strip_prefix(&current).ok_or_else(|| fault("a sample outside its family"))?;
        let suffixes: &[&str] = match family.kind.as_str() {
            "histogram" => &["_bucket", "_sum", "_count"],
            "summary" => &["", "_sum", "_count"],
            _ => &[""],
        };
        if !suffixes.contains(&suffix) {
            return Err(fault("a sample outside its family"));
        }
        if !seen.insert((sample.name.clone(), sample.labels.clone())) {
            return Err(fault("a sample twice"));
        }
        family.samples.push(sample);
    }
    for (name, family) in &families {
        check_family(name, family)?;
    }
    Ok(families)
}

fn check_family(name: &str, family: &Family) -> Result<(), String> {
    if family.help.is_empty() {
        return Err(format!("{name} has no HELP"));
    }
    match family.kind.as_str() {
        "counter" if !name.ends_with("_total") => Err(format!("the counter {name} does not end in _total")),
        "counter" if family.samples.iter().any(|sample| sample.value < 0.0) => {
            Err(format!("{name} is negative"))
        }
        "counter" | "gauge" | "summary" | "untyped" => Ok(()),
        "histogram" => check_histogram(name, family),
        kind => Err(format!("{name} is of type {kind:?}")),
    }
}

fn check_histogram(name: &str, family: &Family) -> Result<(), String> {
    let mut series: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
    let mut counts = BTreeMap::new();
    for sample in &family.samples {
        let mut labels = sample.labels.clone();
        if sample.name.ends_with("_bucket") {
            let bound = labels.remove("le").ok_or_else(|| format!("{name}: a bucket without le"))?;
            let bound = number(&bound).ok_or_else(|| format!("{name}: le={bound:?}"))?;
            series.entry(labels).or_default().push((bound, sample.value));
        } else if sample.name.ends_with("_count") {
            counts.insert(labels, sample.value);
        }
    }
    for (labels, buckets) in series {
        let rising = buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let last = buckets.last().copied().unwrap_or_default();
        if !rising || last.0 != f64::INFINITY || counts.get(&labels) != Some(&last.1) {
            return Err(format!("{name}{labels:?}: buckets that do not add up"));
        }
    }
    Ok(())
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let name = &line[..end];
    let (labels, rest) = if line.as_bytes()[end] == b'{' {
        labels(&line[end + 1..])?
    } else {
        (BTreeMap::new(), &line[end..])
    };
    let value = number(rest.strip_prefix(' ')?)?;
    is_name(name).then(|| Sample { name: name.to_owned(), labels, value })
}

/// `a="x",b="y"} …`: the labels, and what follows the brace.
fn labels(mut text: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    while !text.starts_with('}') {
        let (name, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = rest.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    escaped @ ('\\' | '"') => escaped,
                    _ => return None,
                }),
                (_, character) => value.push(character),
            }
        };
        if !is_name(name) || labels.insert(name.to_owned(), value).is_some() {
            return None;
        }
        text = &rest[end + 1..];
        text = text.strip_prefix(',').unwrap_or(text);
    }
    Some((labels, &text[1..]))
}

fn is_name(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        _ => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn reads_a_good_page_and_refuses_bad_ones() {
        let good = "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"q\\\"\"} 1\na_total{x=\"r\"} 2\n\
                    # HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n";
        assert_eq!(parse(good).expect("good")["a_total"].sum(&[("x", "r")]), 2.0);
        let bad = [
            "a 1\n",
            "# HELP a A.\n# TYPE a counter\na 1\n",
            &good.replace("h_count 2", "h_count 3"),
            &good.replace("x=\"r\"", "x=\"q\\\"\""),
        ];
        for page in bad {
            assert!(parse(page).is_err(), "{page}");
        }
    }
}

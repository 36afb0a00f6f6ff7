//! The page that `hustings compare --report` writes: the tables, and what they look like.

use super::compare::{Row, quantile};
use anyhow::{Result, anyhow};
use hustings_world::Script;
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Colours by protocol, told apart by people who see few colours too.
const COLOURS: [RGBColor; 5] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xd5, 0x5e, 0x00),
];

fn colour(which: usize) -> RGBColor {
    COLOURS[which % COLOURS.len()]
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("drawing a chart: {error}")
}

/// Draws the distribution of the times to a new leader: the share of elections over within so many milliseconds.
fn distribution(names: &[String], totals: &[Row]) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (900, 380)).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        let longest = totals.iter().flat_map(|row| row.gaps.iter().max()).max().copied().unwrap_or(1_000);
        let mut chart = ChartBuilder::on(&area)
            .caption("Elections over within this time", ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(48)
            .build_cartesian_2d((1.0..(longest as f64 / 1_000.0).max(2.0)).log_scale(), 0.0..100.0)
            .map_err(failed)?;
        chart.configure_mesh().x_desc("milliseconds").y_desc("%").draw().map_err(failed)?;
        for (which, (name, row)) in names.iter().zip(totals).enumerate() {
            let mut gaps: Vec<f64> = row.gaps.iter().map(|micros| (*micros as f64 / 1_000.0).max(1.0)).collect();
            gaps.sort_by(f64::total_cmp);
            let count = gaps.len().max(1) as f64;
            let points = gaps.iter().enumerate().map(|(place, gap)| (*gap, 100.0 * (place + 1) as f64 / count));
            chart
                .draw_series(LineSeries::new(points, colour(which).stroke_width(2)))
                .map_err(failed)?
                .label(name.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour(which).stroke_width(3)));
        }
        let labels = chart.configure_series_labels().border_style(BLACK.mix(0.2)).background_style(WHITE).draw();
        labels.map_err(failed)?;
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

/// The height of a storm's row, where bars begin, and how wide the longest is.
const ROW: f64 = 26.0;
const BARS_LEFT: f64 = 210.0;
const BARS_WIDTH: f64 = 610.0;

fn rgb(which: usize) -> String {
    let RGBColor(red, green, blue) = colour(which);
    format!("rgb({red},{green},{blue})")
}

/// Seconds without a leader, storm by storm. A storm's name and its bars stand in one group at one height: an axis that chooses its
/// own labels once put the bars of one storm under the name of the next.
fn by_storm(names: &[String], storms: &[(String, Script)], rows: &BTreeMap<(usize, usize), Row>) -> String {
    let height = 60.0 + ROW * storms.len() as f64;
    let longest = rows.values().map(Row::leaderless_seconds).fold(0.1, f64::max);
    let mut svg = format!(
        "<svg width=\"900\" height=\"{height}\" role=\"img\" aria-label=\"Seconds without a leader in a run of each storm\" \
         font-family=\"sans-serif\"><text x=\"450\" y=\"22\" text-anchor=\"middle\" font-size=\"18\">Seconds without a leader in a run of \
         each storm</text>"
    );
    let thickness = (ROW - 4.0) / names.len().max(1) as f64;
    for (storm, (title, _)) in storms.iter().enumerate() {
        let top = 36.0 + ROW * storm as f64;
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "<g data-storm=\"{title}\"><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"13\">{title}</text>",
            BARS_LEFT - 8.0,
            top + ROW / 2.0 + 3.0
        );
        for (which, name) in names.iter().enumerate() {
            let Some(seconds) = rows.get(&(which, storm)).map(Row::leaderless_seconds) else { continue };
            let _ = write!(
                svg,
                "<rect data-protocol=\"{name}\" x=\"{BARS_LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\">\
                 <title>{title}, {name}: {seconds:.2} s</title></rect>",
                top + 2.0 + thickness * which as f64,
                BARS_WIDTH * seconds / longest,
                thickness,
                rgb(which)
            );
        }
        let widest = (0..names.len()).filter_map(|which| rows.get(&(which, storm))).map(Row::leaderless_seconds);
        let widest = widest.fold(0.0, f64::max);
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" fill=\"#666\">{widest:.2} s</text></g>",
            BARS_LEFT + BARS_WIDTH * widest / longest + 6.0,
            top + ROW / 2.0 + 3.0
        );
    }
    svg.push_str("</svg>");
    svg
}

fn table(names: &[String], totals: &[Row]) -> String {
    let mut html = String::from("<table><tr><th></th>");
    for (which, name) in names.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = write!(html, "<th style=\"border-bottom:3px solid {}\">{name}</th>", rgb(which));
    }
    html.push_str("</tr>");
    let columns = totals.first().map(Row::cells).unwrap_or_default();
    for (place, (column, _)) in columns.iter().enumerate() {
        let _ = write!(html, "<tr><th>{column}</th>");
        for row in totals {
            let _ = write!(html, "<td>{}</td>", row.cells()[place].1);
        }
        html.push_str("</tr>");
    }
    html.push_str("</table>");
    html
}

/// The page: one file without scripts.
///
/// # Errors
/// When a chart cannot be drawn.
pub(crate) fn page(
    names: &[String],
    storms: &[(String, Script)],
    totals: &[Row],
    rows: &BTreeMap<(usize, usize), Row>,
    seeds: u64,
) -> Result<String> {
    let medians = names.iter().zip(totals).map(|(name, row)| {
        let gaps: Vec<f64> = row.gaps.iter().map(|micros| *micros as f64 / 1_000.0).collect();
        quantile(&gaps, 0.5).map_or(format!("{name}: no election"), |median| format!("{name}: {median:.1} ms"))
    });
    let medians: Vec<String> = medians.collect();
    Ok(format!(
        "<!doctype html><meta charset=\"utf-8\"><title>Hustings: protocols compared</title>\
         <style>body{{font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2em auto;color:#222}}\
         table{{border-collapse:collapse;margin:1em 0}}th,td{{padding:.25em .8em;text-align:right}}\
         tr>th:first-child{{text-align:left;font-weight:500}}tr:nth-child(even){{background:#f5f6f8}}</style>\
         <h1>Protocols under the same storms</h1>\
         <p>{} storms, {seeds} seeds each, in virtual time. Median time to a new leader: {}.</p>{}{}{}",
        storms.len(),
        medians.join(", "),
        table(names, totals),
        distribution(names, totals)?,
        by_storm(names, storms, rows)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number that an attribute has.
    fn attribute(element: &str, name: &str) -> f64 {
        let (_, behind) =
            element.split_once(&format!(" {name}=\"")).unwrap_or_else(|| panic!("no {name} in {element}"));
        behind.split_once('"').and_then(|(number, _)| number.parse().ok()).expect("a number")
    }

    /// Goal: bars stand under the name of their own storm. Method: each storm without a leader for as many seconds as its place; the
    /// group with a storm's name has its bar, at the name's height.
    #[test]
    fn every_bar_stands_beside_its_own_name() {
        let script = Script::parse("cluster 3").expect("it can be read");
        let storms: Vec<(String, Script)> = ["bridge", "cold-start", "constrained-election", "split-vote", "star"]
            .map(|name| (name.to_owned(), script.clone()))
            .into();
        let names = ["raft".to_owned(), "zab".to_owned()];
        let row = |seconds: usize| Row::without_leader_for(seconds as u64 * 1_000_000);
        let both = (0..storms.len()).flat_map(|storm| [((0, storm), row(storm + 1)), ((1, storm), row(0))]);
        let svg = by_storm(&names, &storms, &both.collect());
        let groups: Vec<&str> = svg.split("<g ").skip(1).collect();
        assert_eq!(groups.len(), storms.len());
        for (place, (group, (name, _))) in groups.iter().zip(&storms).enumerate() {
            assert!(
                group.contains(&format!("data-storm=\"{name}\"")) && group.contains(&format!(">{name}</text>")),
                "{group}"
            );
            let bars: Vec<&str> = group.split("<rect").skip(1).collect();
            assert_eq!(bars.len(), 2, "{group}");
            assert!(bars[0].contains(&format!("{name}, raft: {}.00 s", place + 1)), "{group}");
            assert!((attribute(bars[0], "width") - BARS_WIDTH * (place + 1) as f64 / 5.0).abs() < 0.1, "{group}");
            let label = attribute(group.split_once("<text").expect("a name").1, "y");
            let (top, bottom) = (attribute(bars[0], "y"), attribute(bars[1], "y") + attribute(bars[1], "height"));
            assert!(top < label && label < bottom, "{name} stands at {label}, its bars from {top} to {bottom}");
        }
    }
}

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

/// How the times to a new leader are distributed: the share of elections over within so many milliseconds.
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

/// Seconds without a leader, storm by storm.
fn by_storm(names: &[String], storms: &[(String, Script)], rows: &BTreeMap<(usize, usize), Row>) -> Result<String> {
    let mut svg = String::new();
    {
        let height = 60 + 26 * storms.len() as u32;
        let area = SVGBackend::with_string(&mut svg, (900, height)).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        let longest = rows.values().map(Row::leaderless_seconds).fold(0.1, f64::max);
        let mut chart = ChartBuilder::on(&area)
            .caption("Seconds without a leader in a run of each storm", ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(28)
            .y_label_area_size(190)
            .build_cartesian_2d(0.0..longest * 1.05, 0.0..storms.len() as f64)
            .map_err(failed)?;
        let title = |place: &f64| {
            let from_top = storms.len().checked_sub(1 + place.floor() as usize);
            from_top.and_then(|at| storms.get(at)).map(|(name, _)| name.clone()).unwrap_or_default()
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(storms.len())
            .y_label_formatter(&title)
            .draw()
            .map_err(failed)?;
        let thickness = 0.8 / names.len().max(1) as f64;
        for which in 0..names.len() {
            let bars = (0..storms.len()).filter_map(|storm| {
                let seconds = rows.get(&(which, storm))?.leaderless_seconds();
                let top = (storms.len() - storm) as f64 - 0.1 - thickness * which as f64;
                Some(Rectangle::new([(0.0, top - thickness), (seconds, top)], colour(which).filled()))
            });
            chart.draw_series(bars).map_err(failed)?;
        }
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

fn table(names: &[String], totals: &[Row]) -> String {
    let mut html = String::from("<table><tr><th></th>");
    for (which, name) in names.iter().enumerate() {
        let RGBColor(red, green, blue) = colour(which);
        // Writing to a string does not fail.
        let _ = write!(html, "<th style=\"border-bottom:3px solid rgb({red},{green},{blue})\">{name}</th>");
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
        by_storm(names, storms, rows)?
    ))
}

"""The shipped rules in a real Prometheus engine: promtool reads them, and each alert is raised by what it is for."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

import netplug_cli
from tests.harness.console_pages import ROOT
from tests.harness.servers.binaries import find_promtool
from tools.monitoring import ALERTS

RULES = Path(netplug_cli.__file__).parent / "manifests" / "monitoring" / "prometheus-rules.yaml"
PAGE = ROOT / "docs" / "monitoring.md"
STEADY, RISING = "1x900", "0+60x900"
AT = "14h"

_OF_A = 'instance="a"'
_STORE = 'instance="a",datastore="etcdv3",location="https://etcd:2379"'
_TASK = 'instance="a",task="routes"'
HEALTHY: Mapping[str, str] = {
    'netplug_node_build_info{instance="a",version="3.33.0"}': STEADY,
    'netplug_node_calls_total{instance="a",command="ADD",code="0"}': RISING,
    f"netplug_node_missing_plugins{{{_OF_A}}}": "0x900",
    f"netplug_policy_source_guard_drops_total{{{_OF_A}}}": "0+6x900",
    f"netplug_node_datastore_up{{{_STORE}}}": STEADY,
    f"netplug_node_cache_age_seconds{{{_STORE}}}": "20x900",
    f'netplug_node_pool_addresses{{{_STORE},pool="main"}}': "100x900",
    f'netplug_node_pool_block_addresses_in_use{{{_STORE},pool="main"}}': "50x900",
    f'netplug_node_credential_left_seconds{{{_STORE},access="datastore",credential="certificate"}}': "8640000x900",
    f'netplug_node_credential_left_seconds{{{_STORE},access="plugin",credential="token"}}': "40000x900",
    f"netplug_node_task_failures_in_a_row{{{_TASK}}}": "1x900",
    f"netplug_node_task_stuck{{{_TASK}}}": "0x900",
    'netplug_operator_build_info{instance="a",version="3.33.0"}': STEADY,
    'netplug_operator_leader{instance="a"}': STEADY,
    'netplug_operator_condition{instance="a",type="Degraded"}': "0x900",
    'netplug_controllers_build_info{instance="a",version="3.33.0"}': STEADY,
    'netplug_controllers_leader{instance="a"}': STEADY,
    'netplug_controllers_failures_in_a_row{instance="a",controller="node"}': "1x900",
    'netplug_controllers_collection_freed_addresses_total{instance="a"}': "0+0.1x900",
}


def slow(series: str, labels: str) -> dict[str, str]:
    """A histogram of which every call falls between ten and thirty seconds."""
    return {
        f'{series}{{{labels},le="{le}"}}': values for le, values in (("10", "0x900"), ("30", RISING), ("+Inf", RISING))
    }


RAISED: Mapping[str, Mapping[str, str]] = {
    "NetplugPodsDoNotStart": {'netplug_node_calls_total{instance="a",command="ADD",code="11"}': "0+90x900"},
    "NetplugPodsDoNotStartOnNode": {'netplug_node_calls_total{instance="a",command="ADD",code="11"}': "0+30x900"},
    "NetplugPodsStartSlowly": slow("netplug_node_call_duration_seconds_bucket", f'{_OF_A},command="ADD"'),
    "NetplugCallsRefused": {'netplug_node_calls_refused_total{instance="a",command="ADD"}': RISING},
    "NetplugNodeGone": {'netplug_node_build_info{instance="b",version="3.33.0"}': "1x820"},
    "NetplugNodeRestarts": {f"process_start_time_seconds{{{_OF_A}}}": "0+600x900"},
    "NetplugPluginMissing": {f"netplug_node_missing_plugins{{{_OF_A}}}": STEADY},
    "NetplugReleasesDiffer": {'netplug_node_build_info{instance="b",version="3.34.0"}': STEADY},
    "NetplugForeignSources": {f"netplug_policy_source_guard_drops_total{{{_OF_A}}}": "0+120x900"},
    "NetplugPoolsExhausted": {'netplug_node_calls_total{instance="a",command="ADD",code="105"}': "0+1x900"},
    "NetplugPoolNearlyFull": {f'netplug_node_pool_block_addresses_in_use{{{_STORE},pool="main"}}': "95x900"},
    "NetplugBlockLimitReached": {'netplug_node_calls_total{instance="a",command="ADD",code="106"}': "0+1x900"},
    "NetplugRecordsPassedOver": {f'netplug_node_records_passed_over{{{_STORE},kind="IPPool"}}': STEADY},
    "NetplugReleaseRecordsWait": {f"netplug_node_release_records{{{_OF_A}}}": STEADY},
    "NetplugReleaseRecordsDamaged": {f"netplug_node_damaged_release_records{{{_OF_A}}}": STEADY},
    "NetplugDatastoreDown": {f"netplug_node_datastore_up{{{_STORE}}}": "0x900"},
    "NetplugDatastoreSlow": slow("netplug_node_datastore_call_duration_seconds_bucket", f'{_STORE},operation="read"'),
    "NetplugCacheOld": {f"netplug_node_cache_age_seconds{{{_STORE}}}": "300x900"},
    "NetplugCertificateExpires": {
        f'netplug_node_credential_left_seconds{{{_STORE},access="datastore",credential="certificate"}}': "400000x900"
    },
    "NetplugCredentialExpired": {
        f'netplug_node_credential_left_seconds{{{_STORE},access="plugin",credential="token"}}': "-10x900"
    },
    "NetplugTaskFails": {f"netplug_node_task_failures_in_a_row{{{_TASK}}}": "6x900"},
    "NetplugTaskHasProblems": {f"netplug_node_task_problems{{{_TASK}}}": STEADY},
    "NetplugTaskStuck": {f"netplug_node_task_stuck{{{_TASK}}}": STEADY},
    "NetplugOperatorDegraded": {'netplug_operator_condition{instance="a",type="Degraded"}': STEADY},
    "NetplugOperatorGone": {'netplug_operator_build_info{instance="a",version="3.33.0"}': "1x820"},
    "NetplugOperatorDoesNotAct": {'netplug_operator_leader{instance="a"}': "0x900"},
    "NetplugOperatorWritesFail": {
        'netplug_operator_writes_total{instance="a",verb="apply",kind="DaemonSet",outcome="failed"}': RISING
    },
    "NetplugControllersGone": {'netplug_controllers_build_info{instance="a",version="3.33.0"}': "1x820"},
    "NetplugControllersDoNotAct": {'netplug_controllers_leader{instance="a"}': "0x900"},
    "NetplugControllerFails": {'netplug_controllers_failures_in_a_row{instance="a",controller="node"}': "6x900"},
    "NetplugAddressesLeak": {'netplug_controllers_collection_freed_addresses_total{instance="a"}': "0+1x900"},
}
BESIDES = {  # what else such a cluster has
    "NetplugPodsDoNotStart": {"NetplugPodsDoNotStartOnNode"},
}


def promtool(*arguments: str) -> str:
    """What promtool prints; it has to succeed."""
    ran = subprocess.run([find_promtool(), *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_every_alert_has_its_case() -> None:
    assert list(RAISED) == [alert.name for alert in ALERTS]


def test_promtool_reads_the_rules_and_prints_what_the_page_shows() -> None:
    assert promtool("check", "rules", str(RULES.relative_to(ROOT))).strip() in PAGE.read_text()


def test_promtool_reads_the_configuration_of_the_page(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", PAGE.read_text(), re.DOTALL)
    file = tmp_path / "prometheus.yml"
    file.write_text(block)
    assert "SUCCESS" in promtool("check", "config", str(file))


@pytest.mark.parametrize("name", ["", *RAISED], ids=["healthy", *RAISED])
def test_an_alert_is_raised_by_its_cause_and_by_nothing_else(name: str, tmp_path: Path) -> None:
    series = {**HEALTHY, **(RAISED[name] if name else {})}
    raised = sorted({name, *BESIDES.get(name, ())} - {""})
    case = {
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": AT,
                "exp_samples": [{"labels": f'{{alertname="{one}"}}', "value": 1} for one in raised],
            }
        ],
    }
    file = tmp_path / "case.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [case]}))
    assert "SUCCESS" in promtool("test", "rules", str(file))

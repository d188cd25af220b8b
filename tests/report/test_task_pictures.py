"""Pictures of regressions of many tasks."""

from __future__ import annotations

import numpy as np

from fedspan.report.models.task_pictures import for_a_new_task, representation, task_errors

from .report_reading import Fitted, Page


def test_tasks_have_their_representation_and_errors_the_worst_first():
    model = Fitted(
        representation_=np.eye(4)[:, :2],
        tasks_=np.array(["a", "b", "c"]),
        task_errors_=np.array([1.0, np.nan, 3.0]),
        noise_variance_=4.0,
        representation_error_=0.01,
    )
    assert "feature 0, 1: 1" in Page(representation(model).body).words
    page = Page(task_errors(model).body)
    assert [words for words in page.words if words in ("a: 1", "c: 3")] == ["c: 3", "a: 1"]
    assert "the median of 2 tasks is 2; 1 had no row to spare." in task_errors(model).remark
    assert "deviation of the noise 2" in Page(for_a_new_task(model).body).text
    model.task_errors_ = np.full(3, np.nan)
    assert task_errors(model) is None

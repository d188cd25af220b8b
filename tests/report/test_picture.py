"""Pictures are found by the attributes of a model, which are read with care."""

from __future__ import annotations

from fedspan.report.markup import Html
from fedspan.report.models import picture as pictures
from fedspan.report.models.model_section import models_section
from fedspan.report.models.picture import Picture, array_of, image_shape, picture, pixel_names

from .report_reading import Fitted, Page


def page_of(*fitted) -> Page:
    return Page(models_section(fitted))


def test_a_new_picture_is_registered_where_it_is_drawn(monkeypatch):
    pictures.pictures_of(Fitted())  # imports every module of pictures, which would else be forgotten with the copy
    monkeypatch.setattr(pictures, "_registered", list(pictures._registered))

    @picture(marks_=1)
    def marks(model, names, found):
        return Picture("Marks", Html(f"<b>{found.sum():g} here</b>"))

    assert "Fitted Marks 3 here" in page_of(Fitted(marks_=[1, 2])).text
    assert "Marks" not in page_of(Fitted(marks_=[[1, 2]])).text
    assert marks(Fitted()) is None


def test_what_a_model_has_is_read_with_care():
    model = Fitted(a=[1, 2], b="text", c=[[1.0]], d=[])
    assert array_of(model, "a", 1).tolist() == [1.0, 2.0]
    assert [array_of(model, name, 1) for name in "bcde"] == [None] * 4
    assert pixel_names((1, 2)) == ["pixel_0_0", "pixel_0_1"]
    assert image_shape(pixel_names((8, 9))) == (8, 9)
    assert image_shape(["age", "dose"]) is None

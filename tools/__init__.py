"""Tools that measure, generate and release. They import the product; neither product nor image has them."""

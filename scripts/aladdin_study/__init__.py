"""The simulations of the Aladdin paper (sections 6.4 and 6.5) again, with lower bounds beside them."""
